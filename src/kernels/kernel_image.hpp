// The compiled GPU kernels, embedded in the library.
//
// A build without nvcc has none: `kernel_image()` is empty then and says so to whoever wants a device group.
#pragma once

#include <cstddef>
#include <span>

namespace chorale::cuda {

/// The fat binary for cuModuleLoadData; empty when this build has no GPU kernels.
[[nodiscard]] std::span<const std::byte> kernel_image() noexcept;

}  // namespace chorale::cuda
