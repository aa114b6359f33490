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
/// A warp's `Ahead` groups of four lines: which lines, and this lane's share of them. `Whole`: every word of
/// them exists and both buffers are aligned to 8 bytes, so that nothing needs checking and loads go out
/// together.
template <std::uint32_t Ranks, std::uint32_t Ahead, bool Whole>
class line_exchange {
 public:
  __device__ line_exchange(gpu_machine& m, operation<gpu_machine>& op, const all_reduce_args& args,
                           std::uint64_t base)
      : m_{m}, op_{op}, args_{args}, group_{args.group}, base_{base}, lines_{lines_of(args.count)} {}

  __device__ void load() {
#pragma unroll
    for (std::uint32_t u = 0; u < Ahead; ++u) {
      const std::uint64_t word = word_of_lane(line(u), lane());
      own_[u].a = load_word(word);
      own_[u].b = lane() == 7 ? 0 : load_word(word + 1);
    }
  }

  __device__ void push() {
    const std::uint32_t ranks = Ranks != 0 ? Ranks : group_.size;
    if (lane() == 7) {
#pragma unroll
      for (std::uint32_t u = 0; u < Ahead; ++u) own_[u].b = op_.counter();
    }
    for (std::uint32_t r = 0; r < ranks; ++r) {
      if (r == group_.rank) continue;
      packet* slots = mine(line_slots(group_, r, group_.rank, op_.parity()));
#pragma unroll
      for (std::uint32_t u = 0; u < Ahead; ++u)
        if (exists(u)) m_.store_packet(slots + u * packets_per_step, {own_[u].a, own_[u].b});
    }
  }

  /// Sums over all ranks in rank order into the registers of load(). False, for the whole warp, when stopped.
  __device__ bool pull() {
    const std::uint32_t ranks = Ranks != 0 ? Ranks : group_.size;
    line_part sum[Ahead];
#pragma unroll
    for (std::uint32_t r = 0; r < ranks; ++r) {
      line_part part[Ahead];
      if (r == group_.rank) {
#pragma unroll
        for (std::uint32_t u = 0; u < Ahead; ++u) part[u] = own_[u];
      } else if (!receive(mine(line_slots(group_, group_.rank, r, op_.parity())), part)) {
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

  __device__ void store() {
#pragma unroll
    for (std::uint32_t u = 0; u < Ahead; ++u) {
      const std::uint64_t word = word_of_lane(line(u), lane());
      store_word(word, own_[u].a);
      if (lane() != 7) store_word(word + 1, own_[u].b);
    }
  }

 private:
  static constexpr std::uint32_t packets_per_step = lines_per_warp * line_bytes / sizeof(packet);

  __device__ static std::uint32_t lane() { return threadIdx.x & 7; }
  __device__ std::uint64_t line(std::uint32_t u) const {
    return base_ + u * lines_per_warp + ((threadIdx.x & 31) >> 3);
  }
  __device__ bool exists(std::uint32_t u) const { return Whole || line(u) < lines_; }
  /// This lane's place in the first of the lines; the next lies `packets_per_step` further.
  __device__ packet* mine(std::uint64_t* slots) const {
    return reinterpret_cast<packet*>(slots + line(0) * (line_bytes / 8)) + lane();
  }
  __device__ std::uint64_t load_word(std::uint64_t i) const {
    if constexpr (Whole) return reinterpret_cast<const std::uint64_t*>(args_.in)[i];
    if (2 * i >= args_.count) return 0;
    const f32_pair v = load_pair(args_, i);
    return to_bits(v.a) | (static_cast<std::uint64_t>(to_bits(v.b)) << 32);
  }
  __device__ void store_word(std::uint64_t i, std::uint64_t word) const {
    if constexpr (Whole) {
      reinterpret_cast<std::uint64_t*>(args_.out)[i] = word;
    } else if (2 * i < args_.count) {
      store_pair(
          args_, i,
          {to_float(static_cast<std::uint32_t>(word)), to_float(static_cast<std::uint32_t>(word >> 32))});
    }
  }
  /// The warp reads until every line carries the counter. All lanes leave together.
  __device__ bool receive(const packet* slots, line_part (&part)[Ahead]) {
    const std::uint64_t flag = op_.counter();
    const auto arrived = [&] {
      bool missing = false;
#pragma unroll
      for (std::uint32_t u = 0; u < Ahead; ++u) {
        packet p{0, flag};
        if (exists(u)) p = m_.load_packet(slots + u * packets_per_step);
        part[u] = {p.low, p.high};
      }
#pragma unroll
      for (std::uint32_t u = 0; u < Ahead; ++u) missing |= lane() == 7 && part[u].b != flag;
      return !__any_sync(0xffffffffu, missing);
    };
    return op_.wait_together(arrived);
  }

  gpu_machine& m_;
  operation<gpu_machine>& op_;
  const all_reduce_args& args_;
  const group_view& group_;
  std::uint64_t base_;
  std::uint64_t lines_;
  line_part own_[Ahead];
};

template <std::uint32_t Ranks, std::uint32_t Ahead, bool Whole, class Admit>
__device__ bool exchange_round_as(gpu_machine& m, operation<gpu_machine>& op, const all_reduce_args& args,
                                  std::uint64_t base, Admit admit) {
  line_exchange<Ranks, Ahead, Whole> lines{m, op, args, base};
  lines.load();
  lines.push();
  if (!admit(lines.pull())) return false;
  lines.store();
  return true;
}
/// What a warp does with the lines from `base` on. `admit` is the CTA's meeting before its first store; later
/// rounds pass one that only says whether they were stopped.
template <std::uint32_t Ranks, std::uint32_t Ahead, class Admit>
__device__ bool exchange_round(gpu_machine& m, operation<gpu_machine>& op, const all_reduce_args& args,
                               std::uint64_t base, Admit admit) {
  const std::uint64_t whole_lines = args.alignment >= 8 ? args.count / (2 * line_words) : 0;
  if (base + lines_per_warp * Ahead <= whole_lines)
    return exchange_round_as<Ranks, Ahead, true>(m, op, args, base, admit);
  return exchange_round_as<Ranks, Ahead, false>(m, op, args, base, admit);
}

/// The last warp sees to signatures, the others to lines.
template <std::uint32_t Ranks, std::uint32_t Ahead>
__device__ bool exchange_lines(gpu_machine& m, operation<gpu_machine>& op, const all_reduce_args& args) {
  const std::uint64_t lines = lines_of(args.count);
  const std::uint32_t workers = m.threads() / 32 - 1;
  const std::uint32_t warp = m.thread() / 32;
  const std::uint64_t step = static_cast<std::uint64_t>(lines_per_warp) * Ahead;
  const std::uint64_t stride = m.ctas() * workers * step;
  const std::uint64_t first = (static_cast<std::uint64_t>(m.cta()) * workers + warp) * step;

  op.send_signature();
  const auto meet = [&](bool ok) { return !m.sync_or(!ok); };
  if (warp == workers || first >= lines) return meet(op.check_signatures());
  if (!exchange_round<Ranks, Ahead>(m, op, args, first, meet)) return false;
  const auto go_on = [](bool ok) { return ok; };
  for (std::uint64_t base = first + stride; base < lines; base += stride)
    if (!exchange_round<Ranks, Ahead>(m, op, args, base, go_on)) return false;
  return true;
}

template <std::uint32_t Ranks, std::uint32_t Ahead>
__device__ void all_reduce_lines(gpu_machine& m, const all_reduce_args& args) {
  operation<gpu_machine> op{m, args};
  const bool ok = op.begin() && exchange_lines<Ranks, Ahead>(m, op, args);
  op.end(ok);
}

}  // namespace chorale::kernels
