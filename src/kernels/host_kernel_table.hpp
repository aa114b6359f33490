// All reductions of host memory that one instruction set offers; null where there is none. Private to
// src/kernels.
#pragma once

#include <chorale/kernels/dtype.hpp>
#include <chorale/kernels/host_fold.hpp>
#include <chorale/kernels/host_reduce.hpp>
#include <chorale/kernels/host_scale.hpp>

#include <array>
#include <cstddef>

namespace chorale::detail {

inline constexpr std::size_t dtype_count = static_cast<std::size_t>(dtype::f8e5m2) + 1;
inline constexpr std::size_t reduction_count = static_cast<std::size_t>(reduction::user) + 1;

struct host_kernels_of_type {
  host_reduction combine[reduction_count] = {};
  host_folding folding[reduction_count] = {};
  host_division divide = nullptr;
  host_scaling scale = nullptr;
};

struct host_kernel_table {
  host_kernels_of_type of[dtype_count] = {};
};

/// The table of an instruction set that this processor has; a null row for values that name no type.
[[nodiscard]] const host_kernels_of_type* find_host_kernels(dtype type, instruction_set set) noexcept;

extern const host_kernel_table portable_host_kernels;
#if defined(__x86_64__)
extern const host_kernel_table avx2_host_kernels;
extern const host_kernel_table avx512_host_kernels;
#endif

}  // namespace chorale::detail
