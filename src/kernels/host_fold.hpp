// Left folds of host memory in an accumulator that is wider than the elements, with one rounding at the end:
// ((in0 ⊕ in1) ⊕ in2) ⊕ … as deterministic mode and slice owners evaluate it.
//
// The caller owns the accumulator, `accumulator_bytes` per element, and goes begin, fold …, finish. With a
// single input, or when the last is folded already, `round` takes finish's place. For sum, prod, avg and
// premul_sum of 16- and 8-bit floats the accumulator is f32; else it is the type itself and finishing is one
// more combination.
//
// `acc_out` may be `acc`, `out` may be `in`; where the accumulator is the type itself `out` may be `acc`.
// Nothing overlaps otherwise, and nothing needs an alignment. Any thread.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/kernels/dtype.hpp>
#include <chorale/kernels/host_instruction_set.hpp>

#include <cstddef>
#include <cstdint>

namespace chorale {

struct host_folding {
  std::size_t accumulator_bytes = 0;
  /// acc = in
  void (*begin)(std::byte* acc, const std::byte* in, std::size_t count) noexcept = nullptr;
  /// acc_out = acc ⊕ in
  void (*fold)(std::byte* acc_out, const std::byte* acc, const std::byte* in,
               std::size_t count) noexcept = nullptr;
  /// out = rounded(acc ⊕ in)
  void (*finish)(std::byte* out, const std::byte* acc, const std::byte* in,
                 std::size_t count) noexcept = nullptr;
  /// out = rounded(acc)
  void (*round)(std::byte* out, const std::byte* acc, std::size_t count) noexcept = nullptr;
  /// out = rounded((acc ⊕ in) / ranks), so that an average in range never overflows. avg only, else null;
  /// ranks > 0.
  void (*finish_divided)(std::byte* out, const std::byte* acc, const std::byte* in, std::size_t count,
                         std::uint32_t ranks) noexcept = nullptr;
  /// out = rounded(acc / ranks). avg only, else null; ranks > 0.
  void (*round_divided)(std::byte* out, const std::byte* acc, std::size_t count,
                        std::uint32_t ranks) noexcept = nullptr;
};

/// errc::unsupported where find_host_reduction says so.
[[nodiscard]] result<host_folding> find_host_folding(dtype type, reduction op,
                                                     instruction_set set = best_instruction_set());

}  // namespace chorale
