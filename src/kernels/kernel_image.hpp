// The compiled GPU kernels, embedded in the library: one image per source file.
//
// A build without nvcc has none: `kernel_images()` is empty then, and whoever wants a device group is told
// so.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace chorale::cuda {

struct kernel_image {
  std::string_view name;             ///< of the source file
  std::span<const std::byte> bytes;  ///< a fat binary for cuModuleLoadData
};
[[nodiscard]] std::span<const kernel_image> kernel_images() noexcept;

}  // namespace chorale::cuda
