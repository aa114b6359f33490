// LL128 all-reduce: one-shot push of 128-byte lines, fifteen words of data and the counter in the last.
//
// A quarter warp stores a line with eight 16-byte accesses of one instruction. That the line arrives as a
// whole is how the hardware behaves, not something PTX promises: the path is used only on sm_90 over NVLink
// and only after the creation-time proof passed (device_group.hpp). No fence, no credits: room for a whole
// message per parity. In place is safe: a lane keeps in registers what it pushed, and stores only what it
// loaded before.
#pragma once

#include <chorale/kernels/gpu_machine.cuh>

namespace chorale::kernels {

struct line_part {
  std::uint64_t a, b;  ///< two words of a line; lane 7's b is the flag
};

__device__ inline std::uint64_t add_words(std::uint64_t x, std::uint64_t y) {
  const float low = to_float(static_cast<std::uint32_t>(x)) + to_float(static_cast<std::uint32_t>(y));
  const float high =
      to_float(static_cast<std::uint32_t>(x >> 32)) + to_float(static_cast<std::uint32_t>(y >> 32));
  return to_bits(low) | (static_cast<std::uint64_t>(to_bits(high)) << 32);
}
__device__ inline std::uint64_t load_word(const all_reduce_args& args, std::uint64_t i) {
  if (2 * i >= args.count) return 0;
  const f32_pair v = load_pair(args, i);
  return to_bits(v.a) | (static_cast<std::uint64_t>(to_bits(v.b)) << 32);
}
__device__ inline void store_word(const all_reduce_args& args, std::uint64_t i, std::uint64_t word) {
  if (2 * i < args.count)
    store_pair(
        args, i,
        {to_float(static_cast<std::uint32_t>(word)), to_float(static_cast<std::uint32_t>(word >> 32))});
}

/// A warp's `Ahead` groups of four lines: which lines, and this lane's share of them.
template <std::uint32_t Ranks, std::uint32_t Ahead>
class line_exchange {
 public:
  __device__ line_exchange(gpu_machine& m, operation<gpu_machine>& op, const all_reduce_args& args)
      : m_{m}, op_{op}, args_{args}, block_{*args.block}, lines_{lines_of(args.count)} {}

  __device__ void push(std::uint64_t base) {
#pragma unroll
    for (std::uint32_t u = 0; u < Ahead; ++u) {
      const std::uint64_t word = word_of_lane(line(base, u), lane());
      own_[u].a = load_word(args_, word);
      own_[u].b = lane() == 7 ? op_.counter() : load_word(args_, word + 1);
    }
    const std::uint32_t ranks = Ranks != 0 ? Ranks : block_.size;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      if (r == block_.rank) continue;
      std::uint64_t* slots = line_slots(block_, r, block_.rank, op_.parity());
#pragma unroll
      for (std::uint32_t u = 0; u < Ahead; ++u)
        if (line(base, u) < lines_) m_.store_packet(at(slots, line(base, u)), {own_[u].a, own_[u].b});
    }
  }

  /// Sums over all ranks in rank order into the registers of push(). False, for the whole warp, when stopped.
  __device__ bool pull(std::uint64_t base) {
    const std::uint32_t ranks = Ranks != 0 ? Ranks : block_.size;
    line_part sum[Ahead];
#pragma unroll
    for (std::uint32_t r = 0; r < ranks; ++r) {
      line_part part[Ahead];
      if (r == block_.rank) {
#pragma unroll
        for (std::uint32_t u = 0; u < Ahead; ++u) part[u] = own_[u];
      } else if (!receive(base, line_slots(block_, block_.rank, r, op_.parity()), part)) {
        return false;
      }
#pragma unroll
      for (std::uint32_t u = 0; u < Ahead; ++u)
        sum[u] = r == 0 ? part[u] : line_part{add_words(sum[u].a, part[u].a), add_words(sum[u].b, part[u].b)};
    }
#pragma unroll
    for (std::uint32_t u = 0; u < Ahead; ++u) own_[u] = sum[u];
    return true;
  }

  __device__ void store(std::uint64_t base) {
#pragma unroll
    for (std::uint32_t u = 0; u < Ahead; ++u) {
      if (line(base, u) >= lines_) continue;
      const std::uint64_t word = word_of_lane(line(base, u), lane());
      store_word(args_, word, own_[u].a);
      if (lane() != 7) store_word(args_, word + 1, own_[u].b);
    }
  }

 private:
  __device__ static std::uint32_t lane() { return threadIdx.x & 7; }
  __device__ static std::uint64_t line(std::uint64_t base, std::uint32_t u) {
    return base + u * lines_per_warp + ((threadIdx.x & 31) >> 3);
  }
  __device__ static packet* at(std::uint64_t* slots, std::uint64_t line) {
    return reinterpret_cast<packet*>(slots + line * (line_bytes / 8)) + lane();
  }
  /// The warp reads until every line carries the counter. All lanes leave together.
  __device__ bool receive(std::uint64_t base, std::uint64_t* slots, line_part (&part)[Ahead]) {
    const auto arrived = [&] {
      bool missing = false;
#pragma unroll
      for (std::uint32_t u = 0; u < Ahead; ++u) {
        packet p{0, op_.counter()};
        if (line(base, u) < lines_) p = m_.load_packet(at(slots, line(base, u)));
        part[u] = {p.low, p.high};
        missing |= lane() == 7 && p.high != op_.counter();
      }
      return !__any_sync(0xffffffffu, missing);
    };
    return op_.wait_together(arrived);
  }

  gpu_machine& m_;
  operation<gpu_machine>& op_;
  const all_reduce_args& args_;
  const device_block& block_;
  std::uint64_t lines_;
  line_part own_[Ahead];
};

template <std::uint32_t Ranks, std::uint32_t Ahead>
__device__ bool exchange_lines(gpu_machine& m, operation<gpu_machine>& op, const all_reduce_args& args) {
  const std::uint64_t lines = lines_of(args.count);
  const std::uint32_t warps = m.threads() / 32;
  const std::uint64_t stride = static_cast<std::uint64_t>(m.ctas()) * warps * lines_per_warp * Ahead;
  const std::uint64_t first =
      (static_cast<std::uint64_t>(m.cta()) * warps + m.thread() / 32) * lines_per_warp * Ahead;
  line_exchange<Ranks, Ahead> exchange{m, op, args};

  op.send_signature();
  if (first < lines) exchange.push(first);
  bool ok = op.check_signatures();
  ok = __all_sync(0xffffffffu, ok) != 0;  // the warp goes on together
  if (ok && first < lines) ok = exchange.pull(first);
  if (m.sync_or(!ok)) return false;
  if (first < lines) exchange.store(first);
  for (std::uint64_t base = first + stride; base < lines; base += stride) {
    exchange.push(base);
    if (!exchange.pull(base)) return false;
    exchange.store(base);
  }
  return true;
}

template <std::uint32_t Ranks, std::uint32_t Ahead>
__device__ void all_reduce_lines(gpu_machine& m, const all_reduce_args& args) {
  operation<gpu_machine> op{m, args};
  const bool ok = op.begin() && exchange_lines<Ranks, Ahead>(m, op, args);
  op.end(ok);
}

}  // namespace chorale::kernels
