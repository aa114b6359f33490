#include <chorale/kernels/kernel_image.hpp>

#include <kernel_image_copy.hpp>
#include <kernel_image_fold_bf16.hpp>
#include <kernel_image_fold_f16.hpp>
#include <kernel_image_fold_f32.hpp>
#include <kernel_image_fold_f64.hpp>
#include <kernel_image_fold_f8e4m3.hpp>
#include <kernel_image_fold_f8e5m2.hpp>
#include <kernel_image_fold_i32.hpp>
#include <kernel_image_fold_i64.hpp>
#include <kernel_image_fold_i8.hpp>
#include <kernel_image_sum_bf16.hpp>
#include <kernel_image_sum_f16.hpp>
#include <kernel_image_sum_f32.hpp>

#include <array>

namespace chorale::cuda {
namespace {

template <class Bytes>
kernel_image image(std::string_view name, const Bytes& bytes) noexcept {
  return {name, std::as_bytes(std::span{bytes})};
}

}  // namespace

std::span<const kernel_image> kernel_images() noexcept {
  static const std::array images{
      image("sum_f32", chorale_kernels_sum_f32),         image("sum_bf16", chorale_kernels_sum_bf16),
      image("sum_f16", chorale_kernels_sum_f16),         image("copy", chorale_kernels_copy),
      image("fold_i8", chorale_kernels_fold_i8),         image("fold_i32", chorale_kernels_fold_i32),
      image("fold_i64", chorale_kernels_fold_i64),       image("fold_f16", chorale_kernels_fold_f16),
      image("fold_bf16", chorale_kernels_fold_bf16),     image("fold_f32", chorale_kernels_fold_f32),
      image("fold_f64", chorale_kernels_fold_f64),       image("fold_f8e4m3", chorale_kernels_fold_f8e4m3),
      image("fold_f8e5m2", chorale_kernels_fold_f8e5m2),
  };
  return images;
}

}  // namespace chorale::cuda
