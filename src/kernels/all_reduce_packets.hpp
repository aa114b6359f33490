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
CHORALE_HOST_DEVICE bool sum_packet(M& m, operation<M>& op, const device_block& block, std::uint64_t i,
                                    f32_pair& mine) {
  const std::uint32_t ranks = Ranks != 0 ? Ranks : block.size;
  f32_pair sum{};
  for (std::uint32_t r = 0; r < ranks; ++r) {
    f32_pair v = mine;
    if (r != block.rank) {
      const packet* slot = packet_slots(block, block.rank, r, op.parity()) + i;
      packet p{};
      if (!op.wait([&] { return carries(p = m.load_packet(slot), op.flag()); })) return false;
      v = {to_float(static_cast<std::uint32_t>(p.low)), to_float(static_cast<std::uint32_t>(p.high))};
    }
    sum = r == 0 ? v : f32_pair{sum.a + v.a, sum.b + v.b};
  }
  mine = sum;
  return true;
}

template <std::uint32_t Ranks, class M>
CHORALE_HOST_DEVICE bool exchange_packets(M& m, operation<M>& op, const all_reduce_args& args) {
  const device_block& block = *args.block;
  const std::uint32_t ranks = Ranks != 0 ? Ranks : block.size;
  const std::uint64_t packets = (args.count + 1) / 2;
  const std::uint64_t stride = static_cast<std::uint64_t>(m.ctas()) * m.threads();
  const std::uint64_t first = static_cast<std::uint64_t>(m.cta()) * m.threads() + m.thread();

  op.send_signature();
  for (std::uint64_t i = first; i < packets; i += stride) {
    const f32_pair mine = load_pair(args, i);
    const packet p = make_packet(to_bits(mine.a), to_bits(mine.b), op.flag());
    for (std::uint32_t r = 0; r < ranks; ++r)
      if (r != block.rank) m.store_packet(packet_slots(block, r, block.rank, op.parity()) + i, p);
  }

  // The first packet is awaited before the CTA meets to admit the operation: both waits overlap.
  bool ok = op.check_signatures();
  f32_pair value{};
  if (ok && first < packets) {
    value = load_pair(args, first);
    ok = sum_packet<Ranks>(m, op, block, first, value);
  }
  if (m.sync_or(!ok)) return false;
  if (first < packets) store_pair(args, first, value);
  for (std::uint64_t i = first + stride; i < packets; i += stride) {
    value = load_pair(args, i);
    if (!sum_packet<Ranks>(m, op, block, i, value)) return false;
    store_pair(args, i, value);
  }
  return true;
}

template <std::uint32_t Ranks, class M>
CHORALE_HOST_DEVICE void all_reduce_packets(M& m, const all_reduce_args& args) {
  operation<M> op{m, args};
  const bool ok = op.begin() && exchange_packets<Ranks>(m, op, args);
  op.end(ok);
}

}  // namespace chorale::kernels
