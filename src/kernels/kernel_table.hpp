// The GPU kernels by name: which image each is in, and which one serves an exchange.
#pragma once

#include <chorale/kernels/dtype.hpp>
#include <chorale/kernels/plan.hpp>

#include <cstddef>
#include <span>
#include <string_view>

namespace chorale::cuda {

struct kernel_entry {
  const char* image;  ///< of kernel_images()
  const char* name;
  bool has_ring;  ///< wants the bulk pushers' shared memory
  std::uint32_t most_threads = 576;
  bool for_pair = false;  ///< takes pair_args
};

/// All of them; a kernel's number is its place here.
[[nodiscard]] std::span<const kernel_entry> all_kernels() noexcept;
inline constexpr std::size_t kernel_count = 54;

/// For a plan that is the same on all edges.
struct kernel_choice {
  kernels::exchange_plan plan;
  std::uint32_t ranks = 0;
  bool folds = false;
  dtype type = dtype::none;  ///< folding
  reduction op = reduction::none;
};
[[nodiscard]] std::size_t kernel_for(const kernel_choice& c) noexcept;
/// For messages whose edges are served in different ways.
[[nodiscard]] std::size_t mixed_kernel() noexcept;

}  // namespace chorale::cuda
