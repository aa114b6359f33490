// LL all-reduce: every rank pushes its data to all peers as flagged packets and sums what arrives.
//
// Packet i carries elements 2i and 2i + 1 and lies at slot i, whatever the grid. One hop, no fence, no
// credit: two slot sets by parity suffice (protocol.hpp). Every rank adds in rank order, so all end bitwise
// the same. In place is safe: the thread that stores an element is the one that loaded and pushed it before.
#pragma once

#include <chorale/kernels/operation.hpp>

namespace chorale::kernels {

struct f32_pair {
  float a, b;
};
CHORALE_HOST_DEVICE inline float to_float(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
CHORALE_HOST_DEVICE inline std::uint32_t to_bits(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}

CHORALE_HOST_DEVICE inline f32_pair load_pair(const all_reduce_args& args, std::uint64_t i) {
  if (2 * i + 1 >= args.count) return {args.in[2 * i], 0.0f};
  if (args.alignment < 8) return {args.in[2 * i], args.in[2 * i + 1]};
  const std::uint64_t word = reinterpret_cast<const std::uint64_t*>(args.in)[i];
  return {to_float(static_cast<std::uint32_t>(word)), to_float(static_cast<std::uint32_t>(word >> 32))};
}
CHORALE_HOST_DEVICE inline void store_pair(const all_reduce_args& args, std::uint64_t i, f32_pair v) {
  if (2 * i + 1 >= args.count) {
    args.out[2 * i] = v.a;
  } else if (args.alignment < 8) {
    args.out[2 * i] = v.a;
    args.out[2 * i + 1] = v.b;
  } else {
    reinterpret_cast<std::uint64_t*>(args.out)[i] =
        to_bits(v.a) | (static_cast<std::uint64_t>(to_bits(v.b)) << 32);
  }
}

/// The sum of packet `i` over all ranks, in rank order; `mine` is the own part. False when stopped.
template <std::uint32_t Ranks, class M>
CHORALE_HOST_DEVICE bool sum_packet(M& m, operation<M>& op, const group_view& group, std::uint64_t i,
                                    f32_pair& mine) {
  const std::uint32_t ranks = Ranks != 0 ? Ranks : group.size;
  f32_pair sum{};
  for (std::uint32_t r = 0; r < ranks; ++r) {
    f32_pair v = mine;
    if (r != group.rank) {
      const packet* slot = packet_slots(group, group.rank, r, op.parity()) + i;
      packet p{};
      if (!op.wait([&] { return carries(p = m.load_packet(slot), op.flag()); })) return false;
      v = {to_float(static_cast<std::uint32_t>(p.low)), to_float(static_cast<std::uint32_t>(p.high))};
    }
    sum = r == 0 ? v : f32_pair{sum.a + v.a, sum.b + v.b};
  }
  mine = sum;
  return true;
}

/// A thread's packets: every `stride`-th. The last warp has none where there are others: it sees to
/// signatures, so that neither wait delays the other.
struct packet_share {
  std::uint64_t first, stride, end;
};
template <class M>
CHORALE_HOST_DEVICE packet_share share_of(const M& m, const all_reduce_args& args) {
  const std::uint32_t workers = m.threads() > 32 ? m.threads() - 32 : m.threads();
  const std::uint64_t packets = (args.count + 1) / 2;
  if (m.thread() >= workers) return {0, 1, 0};
  return {static_cast<std::uint64_t>(m.cta()) * workers + m.thread(),
          static_cast<std::uint64_t>(m.ctas()) * workers, packets};
}

template <std::uint32_t Ranks, class M>
CHORALE_HOST_DEVICE bool exchange_packets(M& m, operation<M>& op, const all_reduce_args& args,
                                          const packet_share& share, f32_pair value) {
  const group_view& group = args.group;
  const std::uint32_t ranks = Ranks != 0 ? Ranks : group.size;
  op.send_signature();
  for (std::uint64_t i = share.first; i < share.end; i += share.stride) {
    const f32_pair mine = i == share.first ? value : load_pair(args, i);
    const packet p = make_packet(to_bits(mine.a), to_bits(mine.b), op.flag());
    for (std::uint32_t r = 0; r < ranks; ++r)
      if (r != group.rank) m.store_packet(packet_slots(group, r, group.rank, op.parity()) + i, p);
  }

  // The first packet is awaited before the CTA meets to admit the operation: both waits overlap.
  bool ok = op.check_signatures();
  if (ok && share.first < share.end) ok = sum_packet<Ranks>(m, op, group, share.first, value);
  if (m.sync_or(!ok)) return false;
  if (share.first < share.end) store_pair(args, share.first, value);
  for (std::uint64_t i = share.first + share.stride; i < share.end; i += share.stride) {
    value = load_pair(args, i);
    if (!sum_packet<Ranks>(m, op, group, i, value)) return false;
    store_pair(args, i, value);
  }
  return true;
}

template <std::uint32_t Ranks, class M>
CHORALE_HOST_DEVICE void all_reduce_packets(M& m, const all_reduce_args& args) {
  operation<M> op{m, args};
  const packet_share share = share_of(m, args);
  f32_pair first{};  // loaded beside what begin() reads
  if (share.first < share.end) first = load_pair(args, share.first);
  const bool ok = op.begin() && exchange_packets<Ranks>(m, op, args, share, first);
  op.end(ok);
}

}  // namespace chorale::kernels
