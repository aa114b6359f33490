// Reductions into host memory that several threads or processes accumulate into at the same time:
// target[i] = target[i] ⊕ in[i], each element atomically.
//
// Atomic with regard to other calls of this function, in whatever process, and not to plain stores; the order
// in which calls meet is open, so sums of floats may differ in their last bits from run to run. `target` is
// aligned to its elements, `in` needs no alignment, and they do not overlap. Publishes nothing: whoever is to
// see the result is told by a release of the caller's. Any thread.
#pragma once

#include <chorale/kernels/host_reduce.hpp>

#include <cstddef>

namespace chorale {

/// `combine` is the kernel of the elements' type (find_host_reduction), `element_bytes` their size.
void accumulate_atomically(std::byte* target, const std::byte* in, std::size_t count,
                           std::size_t element_bytes, host_reduction combine) noexcept;

}  // namespace chorale
