#include <chorale/kernels/kernel_image.hpp>

#include <kernel_image_data.hpp>

namespace chorale::cuda {

std::span<const std::byte> kernel_image() noexcept { return std::as_bytes(std::span{chorale_kernel_image}); }

}  // namespace chorale::cuda
