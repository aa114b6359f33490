// Reductions of host memory: out[i] = left[i] ⊕ right[i].
//
// Operands keep their sides, so that every rank can evaluate one and the same expression. `out` may be `left`
// or `right`, and overlaps neither otherwise. No contraction: one rounding per operation. Any thread.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/kernels/dtype.hpp>

#include <cstddef>

namespace chorale {

using host_reduction = void (*)(std::byte* out, const std::byte* left, const std::byte* right,
                                std::size_t count) noexcept;

/// errc::unsupported for a combination that has no kernel.
[[nodiscard]] result<host_reduction> find_host_reduction(dtype type, reduction op);

}  // namespace chorale
