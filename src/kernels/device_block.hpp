// Memory that a device group's kernels use: who owns it, who writes it.
//
//   region   one per rank, device memory of the library, mapped by every peer. Peers write signatures,
//            packets, lines, chunks, flags and credits here; only the owner reads. Never user memory.
//   block    one per rank, device memory, private: counters, stop word and bookkeeping of its kernels
//   mailbox  one per rank, pinned host memory: the host writes `abort`, kernels write the rest
//
// The layout of a region depends only on values that all ranks agreed on at creation.
#pragma once

#include <chorale/kernels/protocol.hpp>

namespace chorale::kernels {

/// What the ranks agree on before any of it influences the wire: the minimum over all ranks of each field.
struct group_limits {
  std::uint32_t size = 0;
  std::uint32_t ctas = 32;        ///< most CTAs of one launch
  std::uint32_t ll_bytes = 0;     ///< largest message sent as LL packets
  std::uint32_t ll128_bytes = 0;  ///< largest message sent as LL128 lines; 0 = not on this link
  std::uint32_t ring_slots = 3;   ///< chunks in flight per stripe
  std::uint32_t ring_chunk = 0;   ///< bytes of a slot
};

/// Where things lie in a region, in units of 128 bytes.
struct region_layout {
  std::uint32_t signatures = 0;
  std::uint32_t barriers = 0;
  std::uint32_t flags = 0;
  std::uint32_t credits = 0;
  std::uint32_t packets = 0, packets_stride = 0;
  std::uint32_t lines = 0, lines_stride = 0;
  std::uint32_t ring = 0, ring_source_stride = 0, ring_stripe_stride = 0, slot = 0;
  std::uint32_t slots = 0;  ///< per stripe
  std::uint32_t total = 0;
};

inline constexpr std::uint64_t layout_unit = 128;
CHORALE_HOST_DEVICE constexpr std::uint64_t units(std::uint32_t n) { return n * layout_unit; }

inline constexpr std::uint64_t word_stride = 128;  ///< one writer per line
/// Of all signature slots of one source: cleared when the edge's 32-bit flags start anew, as its packets are.
inline constexpr std::uint64_t signatures_stride = 2ull * max_ctas * signature_slots * sizeof(packet);

constexpr region_layout make_layout(const group_limits& limits) {
  const std::uint64_t sources = limits.size - 1;
  const auto in_units = [](std::uint64_t bytes) {
    return static_cast<std::uint32_t>((bytes + layout_unit - 1) / layout_unit);
  };
  region_layout l;
  auto take = [at = std::uint64_t{0}](std::uint64_t bytes) mutable {
    const std::uint64_t here = at;
    at += (bytes + 1023) / 1024 * 1024;
    return static_cast<std::uint32_t>(here / layout_unit);
  };
  l.signatures = take((max_ranks - 1) * signatures_stride);
  l.packets_stride = in_units(2ull * limits.ll_bytes);
  l.packets = take(2 * sources * units(l.packets_stride));
  l.barriers = take((max_ranks - 1) * word_stride);
  l.flags = take((max_ranks - 1) * max_stripes * word_stride);
  l.credits = take((max_ranks - 1) * max_stripes * word_stride);
  // a line more: two parts of an operation share the slots, each in whole lines
  l.lines_stride = limits.ll128_bytes == 0 ? 0 : in_units((lines_of(limits.ll128_bytes) + 1) * line_bytes);
  l.lines = take(2 * sources * units(l.lines_stride));
  l.slots = limits.ring_slots;
  l.slot = in_units(limits.ring_chunk);
  l.ring_stripe_stride = l.slots * l.slot;
  l.ring_source_stride = 2 * limits.ctas * l.ring_stripe_stride;
  l.ring = take(sources * units(l.ring_source_stride));
  l.total = take(0);
  return l;
}

/// Pinned host memory. `done` and `failed_from` speak of launch numbers, which the host gives to plain
/// launches; captured ones carry 0 and report through `status` alone.
struct host_mailbox {
  alignas(128) std::uint64_t abort;    ///< host → kernels: packed verdict
  alignas(128) std::uint64_t status;   ///< kernels → host, sticky: first verdict an operation ended with
  std::uint64_t failed_from;           ///< first plain launch that ended so
  alignas(128) std::uint64_t done;     ///< last plain launch that ended, well or not
  alignas(128) std::uint64_t staging;  ///< the host's own copies land here
};

/// Where a CTA finds the state of the group when it starts, and leaves it when it ends. One record per CTA
/// index, so that a CTA may end while others of its grid have not begun; CTA 0 keeps those beyond its grid.
/// The counters of edges beyond the first lie apart, where only groups of three and more look.
struct alignas(16) cta_record {
  std::uint64_t counter;       ///< last operation of the first edge
  std::uint32_t ended_before;  ///< CTAs that had ended when the last operation was over, modulo 2^32
};

/// What kernels change. Private to the owner's kernels.
struct device_block {
  alignas(128) std::uint64_t stop;      ///< packed verdict; set once, by compare-and-swap, never cleared
  alignas(128) std::uint32_t entered;   ///< CTAs ever started, and ...
  std::uint32_t arrived;                ///< ... ever come to their end: equal when no kernel runs
  std::uint32_t failed;                 ///< of the operation under way: CTAs that failed, ...
  std::uint32_t departed;               ///< ... those done with filling the output, ...
  std::uint32_t fill_next;              ///< ... and the next piece to fill
  std::uint64_t rolled[max_ranks - 1];  ///< per edge: last operation whose roll-over is complete
  alignas(128) cta_record records[max_ctas];
  std::uint64_t counters[max_ctas]
                        [max_ranks - 1];  ///< last operation of each edge, in rank order, from the second on
  /// Ring: first sequence numbers of the next operation, per stripe and edge.
  alignas(128) std::uint64_t ring_sent[max_stripes][max_ranks - 1];
  std::uint64_t ring_received[max_stripes][max_ranks - 1];
};

/// What never changes in the life of a group. Travels with every launch as a kernel parameter, because
/// constant memory answers at once where the block costs a trip to L2.
struct group_view {
  device_block* block;
  std::uint64_t* abort;  ///< host_mailbox::abort as the device sees it
  host_mailbox* host;
  region_layout layout;
  std::uint32_t generation;
  std::uint32_t rank;
  std::uint32_t size;
};

/// What an operation does with one rank. Of the own rank: its own part.
struct exchange_edge {
  std::byte* region;  ///< the rank's, as mapped here
  const std::byte* send;
  std::byte* receive;
  std::uint64_t send_bytes;
  std::uint64_t receive_bytes;
  std::uint64_t count;          ///< of the signature; what is common to all edges is in `kinds`
  std::uint64_t pair;           ///< likewise
  std::uint32_t send_chunk;     ///< ring: bytes of a chunk; lines: how many there are
  std::uint32_t receive_chunk;  ///< likewise
};

/// Kernel parameters of an exchange, the one pattern behind all collectives: what goes to each peer, what
/// comes from each, and whether it is copied to its place or folded.
///   copying   send[p] goes to p, receive[p] comes from p; the own part is copied unless it is in place
///   folding   send[p] is the own contribution to what p folds; receive[own] is where the fold of the own
///             send[own] and of what all peers sent here goes, lower ranks first
///   folding, then gathering   after that receive[own] goes to every peer, receive[p] comes from p
/// Constant memory is cold when a kernel starts and costs a miss per line: what small operations of two ranks
/// need is kept close together, and their kernels have no more parameters than that (pair_args). In those the
/// own rank is called 0 and its peer 1, whichever they are, so that nothing has to be looked up: with two
/// operands no fold cares about their order.
struct exchange_args {
  group_view group;
  std::uint64_t launch;          ///< the host's number of this launch; 0 = captured
  std::uint64_t kinds;           ///< of the signature: kind, dtype, op, flags, root, from the lowest byte on
  std::uint8_t ctas[max_ranks];  ///< that serve the edge; both its ranks know how many
  std::uint8_t peers;            ///< bit per rank: edges that this operation uses, ...
  std::uint8_t by_packets, by_lines, by_ring;  ///< ... and how each is served
  std::uint8_t folds;
  std::uint8_t gathers;
  std::uint8_t one_source;  ///< all of `send` are the same, the own part included, and all peers are served
  std::uint8_t in_place;    ///< folding: the output is the same memory as what peers are sent
  std::uint8_t tells_host;  ///< whether the completion flag is written; never when captured
  std::uint8_t alignment;   ///< of all buffers: 16, 8, 4, 2 or 1
  std::uint8_t bulk;        ///< ring: what goes to peers is aligned for bulk copies
  std::uint8_t bulk_stores_land;   ///< ring: completed bulk stores lie in the peers' memory
  std::uint8_t is_signed;          ///< integers
  std::uint8_t op;                 ///< reduction
  std::uint8_t pair_peer;          ///< kernels of two ranks: which rank the peer is
  std::uint16_t stripes;           ///< ring: two per CTA of `ctas`
  std::uint32_t gathered_lines;    ///< lines, when gathering: where the second part of the slots begins
  std::uint64_t scalar;            ///< premul_sum: this rank's, as an element
  exchange_edge edges[max_ranks];  ///< by rank
};

/// The same as kernels of two ranks take it.
struct alignas(8) pair_args {
  std::byte head[offsetof(exchange_args, edges) + 2 * sizeof(exchange_edge)];
};

CHORALE_HOST_DEVICE constexpr bool has(std::uint8_t set, std::uint32_t rank) {
  return ((set >> rank) & 1) != 0;
}
/// The packets of the signature that this rank and `peer` must agree on.
CHORALE_HOST_DEVICE inline packet signature_packet(const exchange_args& args, std::uint32_t peer,
                                                   std::uint32_t part, std::uint32_t flag) {
  const exchange_edge& edge = args.edges[peer];
  return word_packet(part == 0 ? args.kinds : part == 1 ? edge.count : edge.pair, flag);
}

// Places in the regions. `receiver` and `source` are ranks; one of them is the own one.

CHORALE_HOST_DEVICE inline packet* signature_slot(const exchange_args& a, std::uint32_t receiver,
                                                  std::uint32_t source, std::uint32_t parity,
                                                  std::uint32_t cta, std::uint32_t part) {
  return reinterpret_cast<packet*>(a.edges[receiver].region + units(a.group.layout.signatures) +
                                   source_slot(receiver, source) * signatures_stride) +
         (parity * max_ctas + cta) * signature_slots + part;
}
CHORALE_HOST_DEVICE inline packet* packet_slots(const exchange_args& a, std::uint32_t receiver,
                                                std::uint32_t source, std::uint32_t parity) {
  const std::uint32_t index = 2 * source_slot(receiver, source) + parity;
  return reinterpret_cast<packet*>(a.edges[receiver].region +
                                   units(a.group.layout.packets + index * a.group.layout.packets_stride));
}
CHORALE_HOST_DEVICE inline std::uint64_t* line_slots(const exchange_args& a, std::uint32_t receiver,
                                                     std::uint32_t source, std::uint32_t parity) {
  const std::uint32_t index = 2 * source_slot(receiver, source) + parity;
  return reinterpret_cast<std::uint64_t*>(a.edges[receiver].region +
                                          units(a.group.layout.lines + index * a.group.layout.lines_stride));
}
CHORALE_HOST_DEVICE inline std::uint64_t* barrier_word(const exchange_args& a, std::uint32_t receiver,
                                                       std::uint32_t source) {
  return reinterpret_cast<std::uint64_t*>(a.edges[receiver].region + units(a.group.layout.barriers) +
                                          source_slot(receiver, source) * word_stride);
}
/// Chunks that `source` has delivered to `receiver` on a stripe; written by the source.
CHORALE_HOST_DEVICE inline std::uint64_t* flag_word(const exchange_args& a, std::uint32_t receiver,
                                                    std::uint32_t source, std::uint32_t stripe) {
  return reinterpret_cast<std::uint64_t*>(a.edges[receiver].region + units(a.group.layout.flags) +
                                          (source_slot(receiver, source) * max_stripes + stripe) *
                                              word_stride);
}
/// Chunks of `pusher`'s stripe that `consumer` has used up; in the pusher's region, written by the consumer.
CHORALE_HOST_DEVICE inline std::uint64_t* credit_word(const exchange_args& a, std::uint32_t pusher,
                                                      std::uint32_t consumer, std::uint32_t stripe) {
  return reinterpret_cast<std::uint64_t*>(a.edges[pusher].region + units(a.group.layout.credits) +
                                          (source_slot(pusher, consumer) * max_stripes + stripe) *
                                              word_stride);
}
/// Slot `slot` of a stripe, in the part of `receiver`'s scratch that belongs to `source`.
CHORALE_HOST_DEVICE inline std::byte* ring_slot(const exchange_args& a, std::uint32_t receiver,
                                                std::uint32_t source, std::uint32_t stripe,
                                                std::uint32_t slot) {
  const region_layout& l = a.group.layout;
  return a.edges[receiver].region + units(l.ring + source_slot(receiver, source) * l.ring_source_stride +
                                          stripe * l.ring_stripe_stride + slot * l.slot);
}

}  // namespace chorale::kernels
