// In place of kernel_image.cpp where there is no nvcc.
#include <chorale/kernels/kernel_image.hpp>

namespace chorale::cuda {

std::span<const kernel_image> kernel_images() noexcept { return {}; }

}  // namespace chorale::cuda
