// Reductions of host memory: out[i] = left[i] ⊕ right[i].
//
// Operands keep their sides, so that every rank can evaluate one and the same expression. `out` may be `left`
// or `right`, and overlaps neither otherwise. Nothing needs an alignment. Any thread.
//
// What an operation computes, and that every instruction set computes it to the same bit, is in
// docs/numbers.md: one rounding per operation and no contraction; integers wrap; 16- and 8-bit floats
// calculate in f32 and round once; min and max are minimum and maximum of IEEE 754-2019; a NaN made here is
// the type's one NaN, whatever the operands carried, so sides do not matter to it. avg and premul_sum combine
// like sum: see host_scale.hpp and host_fold.hpp for the rest of them.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/kernels/dtype.hpp>
#include <chorale/kernels/host_instruction_set.hpp>

#include <cstddef>

namespace chorale {

using host_reduction = void (*)(std::byte* out, const std::byte* left, const std::byte* right,
                                std::size_t count) noexcept;

/// errc::unsupported for a combination that has no kernel: bit operations on floats, `user`, `none`.
[[nodiscard]] result<host_reduction> find_host_reduction(dtype type, reduction op,
                                                         instruction_set set = best_instruction_set());

}  // namespace chorale
