// From a described exchange to a launch: whether its buffers are right, which kernel, what grid, and the
// kernel's parameters. No CUDA call; any thread.
#pragma once

#include <chorale/kernels/exchange_call.hpp>
#include <chorale/kernels/kernel_table.hpp>

namespace chorale::cuda {

/// What every exchange must keep to, see device_group::exchange.
[[nodiscard]] result<void> check_exchange(const exchange_call& call, place_in_group at);

/// What never changes in the life of a group.
struct group_memory {
  kernels::group_view view{};
  std::array<std::byte*, kernels::max_ranks>
      regions{};  ///< every rank's as mapped here, the own one included
};

struct launch_arguments {
  kernels::exchange_args args{};
  std::size_t kernel = 0;
  std::uint32_t ctas = 1;
  std::uint32_t threads = 64;
};
/// `planned`: instead of the plan that the limits give. What only the group knows of `args` (launch number,
/// whom to tell, the link) is left to it.
[[nodiscard]] launch_arguments arguments_of(const exchange_call& call, const kernels::exchange_plan* planned,
                                            const group_memory& memory, const kernels::group_limits& limits);

}  // namespace chorale::cuda
