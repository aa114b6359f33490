// Memory that a device group's kernels use: who owns it, who writes it.
//
//   region   one per rank, device memory of the library, mapped by every peer. Peers write signatures,
//            packets, lines, chunks, flags and credits here; only the owner reads. Never user memory.
//   block    one per rank, device memory, private: counters, stop word and bookkeeping of the owner's
//   kernels. mailbox  one per rank, pinned host memory: the host writes `abort`, kernels write the rest.
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

struct region_layout {
  std::uint64_t signatures = 0;
  std::uint64_t barriers = 0;
  std::uint64_t flags = 0;
  std::uint64_t credits = 0;
  std::uint64_t packets = 0, packets_stride = 0;
  std::uint64_t cleared_end = 0;  ///< [0, cleared_end) is zeroed when 32-bit flags start anew, barriers apart
  std::uint64_t lines = 0, lines_stride = 0;
  std::uint64_t ring = 0, ring_source_stride = 0, ring_stripe_stride = 0, slot_bytes = 0;
  std::uint32_t slots = 0;
  std::uint64_t total = 0;
};

inline constexpr std::uint64_t word_stride = 128;  ///< one writer per line

constexpr region_layout make_layout(const group_limits& limits) {
  const std::uint64_t sources = limits.size - 1;
  region_layout l;
  auto take = [at = std::uint64_t{0}](std::uint64_t bytes) mutable {
    const std::uint64_t here = at;
    at += (bytes + 1023) / 1024 * 1024;
    return here;
  };
  // signatures and packets first: they are what a roll-over clears
  l.signatures = take(2ull * max_ctas * (max_ranks - 1) * signature_parts * sizeof(packet));
  l.packets_stride = (2ull * limits.ll_bytes + 127) / 128 * 128;
  l.packets = take(2 * sources * l.packets_stride);
  l.cleared_end = take(0);
  l.barriers = take((max_ranks - 1) * word_stride);
  l.flags = take((max_ranks - 1) * max_stripes * word_stride);
  l.credits = take((max_ranks - 1) * max_stripes * word_stride);
  l.lines_stride = lines_of(limits.ll128_bytes / sizeof(float)) * line_bytes;
  l.lines = take(2 * sources * l.lines_stride);
  l.slots = limits.ring_slots;
  l.slot_bytes = limits.ring_chunk;
  l.ring_stripe_stride = l.slots * l.slot_bytes;
  l.ring_source_stride = 2 * limits.ctas * l.ring_stripe_stride;
  l.ring = take(sources * l.ring_source_stride);
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

struct padded_word {
  alignas(128) std::uint64_t value;
};

/// Where a CTA finds the state of the group when it starts, and leaves it when it ends. One record per CTA
/// index, so that a CTA may end while others of its grid have not begun; CTA 0 keeps those beyond its grid.
struct alignas(16) cta_record {
  std::uint64_t counter;       ///< last operation
  std::uint32_t ended_before;  ///< CTAs that had ended when it was over, modulo 2^32
};

/// What kernels change. Private to the owner's kernels.
struct device_block {
  alignas(128) std::uint64_t stop;     ///< packed verdict; set once, by compare-and-swap, never cleared
  alignas(128) std::uint32_t entered;  ///< CTAs ever started, and ...
  std::uint32_t arrived;               ///< ... ever come to their end: equal when no kernel runs
  std::uint32_t failed;                ///< of the operation under way: CTAs that failed, ...
  std::uint32_t departed;              ///< ... those done with filling the output, ...
  std::uint32_t fill_next;             ///< ... and the next piece to fill
  std::uint64_t rolled;                ///< last operation whose roll-over is complete
  alignas(128) cta_record records[max_ctas];
  alignas(128) std::uint64_t
      ring_sequence[max_stripes];        ///< ring: first sequence number of the next operation
  padded_word ring_pushed[max_stripes];  ///< chunks read from the input so far: in-place reducers wait for it
};

/// What never changes in the life of a group. Travels with every launch as a kernel parameter, because
/// constant memory answers at once where the block costs a trip to L2.
struct group_view {
  device_block* block;
  std::uint64_t* abort;  ///< host_mailbox::abort as the device sees it
  host_mailbox* host;
  std::byte* regions[max_ranks];  ///< every rank's region as mapped here, the own one included
  region_layout layout;
  std::uint32_t generation;
  std::uint32_t rank;
  std::uint32_t size;
};

/// Kernel parameters of an all-reduce.
struct all_reduce_args {
  group_view group;
  const float* in;
  float* out;
  std::uint64_t count;
  std::uint64_t launch;   ///< the host's number of this launch; 0 = captured
  std::uint32_t chunk;    ///< ring: elements per chunk
  std::uint16_t stripes;  ///< ring: two per CTA
  std::uint8_t in_place;
  std::uint8_t tells_host;        ///< whether the completion flag is written; never when captured
  std::uint8_t alignment;         ///< of both buffers: 16, 8 or 4
  std::uint8_t bulk_stores_land;  ///< ring: completed bulk stores lie in the peers' memory
  signature what;
};

CHORALE_HOST_DEVICE inline packet* signature_slot(const group_view& b, std::uint32_t receiver,
                                                  std::uint32_t source, std::uint32_t parity,
                                                  std::uint32_t cta, std::uint32_t part) {
  const std::uint64_t index = ((static_cast<std::uint64_t>(parity) * max_ctas + cta) * (max_ranks - 1) +
                               source_slot(receiver, source)) *
                                  signature_parts +
                              part;
  return reinterpret_cast<packet*>(b.regions[receiver] + b.layout.signatures) + index;
}
CHORALE_HOST_DEVICE inline packet* packet_slots(const group_view& b, std::uint32_t receiver,
                                                std::uint32_t source, std::uint32_t parity) {
  const std::uint64_t index =
      static_cast<std::uint64_t>(parity) * (b.size - 1) + source_slot(receiver, source);
  return reinterpret_cast<packet*>(b.regions[receiver] + b.layout.packets + index * b.layout.packets_stride);
}
CHORALE_HOST_DEVICE inline std::uint64_t* line_slots(const group_view& b, std::uint32_t receiver,
                                                     std::uint32_t source, std::uint32_t parity) {
  const std::uint64_t index =
      static_cast<std::uint64_t>(parity) * (b.size - 1) + source_slot(receiver, source);
  return reinterpret_cast<std::uint64_t*>(b.regions[receiver] + b.layout.lines +
                                          index * b.layout.lines_stride);
}
CHORALE_HOST_DEVICE inline std::uint64_t* barrier_word(const group_view& b, std::uint32_t receiver,
                                                       std::uint32_t source) {
  return reinterpret_cast<std::uint64_t*>(b.regions[receiver] + b.layout.barriers +
                                          source_slot(receiver, source) * word_stride);
}
/// Chunks that `source` has delivered to `receiver` on a stripe; written by the source.
CHORALE_HOST_DEVICE inline std::uint64_t* flag_word(const group_view& b, std::uint32_t receiver,
                                                    std::uint32_t source, std::uint32_t stripe) {
  return reinterpret_cast<std::uint64_t*>(b.regions[receiver] + b.layout.flags +
                                          (source_slot(receiver, source) * max_stripes + stripe) *
                                              word_stride);
}
/// Chunks of `pusher`'s stripe that `consumer` has used up; in the pusher's region, written by the consumer.
CHORALE_HOST_DEVICE inline std::uint64_t* credit_word(const group_view& b, std::uint32_t pusher,
                                                      std::uint32_t consumer, std::uint32_t stripe) {
  return reinterpret_cast<std::uint64_t*>(b.regions[pusher] + b.layout.credits +
                                          (source_slot(pusher, consumer) * max_stripes + stripe) *
                                              word_stride);
}
/// Slot `slot` of a stripe, in the part of `receiver`'s scratch that belongs to `source`.
CHORALE_HOST_DEVICE inline std::byte* ring_slot(const group_view& b, std::uint32_t receiver,
                                                std::uint32_t source, std::uint32_t stripe,
                                                std::uint32_t slot) {
  return b.regions[receiver] + b.layout.ring + source_slot(receiver, source) * b.layout.ring_source_stride +
         stripe * b.layout.ring_stripe_stride + slot * b.layout.slot_bytes;
}

}  // namespace chorale::kernels
