// Averages' division and premultiplied sums' multiplication of host memory. Nothing needs an alignment. Any
// thread.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/kernels/dtype.hpp>
#include <chorale/kernels/host_instruction_set.hpp>

#include <cstddef>
#include <cstdint>

namespace chorale {

/// inout[i] = inout[i] / ranks, for ranks > 0. f32 and f64 round once; 16- and 8-bit floats divide in f32 and
/// round that; integers truncate towards zero.
using host_division = void (*)(std::byte* inout, std::size_t count, std::uint32_t ranks) noexcept;

/// out[i] = in[i] · scalar, which is one element of the same type. `out` may be `in`. Floats round once, 16-
/// and 8-bit ones by way of f32; integers wrap.
using host_scaling = void (*)(std::byte* out, const std::byte* in, std::size_t count,
                              const std::byte* scalar) noexcept;

/// errc::unsupported for dtype::none and values that name no type.
[[nodiscard]] result<host_division> find_host_division(dtype type,
                                                       instruction_set set = best_instruction_set());
[[nodiscard]] result<host_scaling> find_host_scaling(dtype type,
                                                     instruction_set set = best_instruction_set());

}  // namespace chorale
