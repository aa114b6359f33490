// Entry points of the folding kernels of one element type, for any operation and number of ranks.
//
// A source file names its type: CHORALE_FOLD_KERNELS(i8, integer_lane<std::uint8_t>).
#pragma once

#include <chorale/kernels/exchange_lines.cuh>
#include <chorale/kernels/push_bulk.cuh>

namespace chorale::kernels {

/// Kernel functions of a lane type, as the entry points call them.
template <class Lane>
struct fold_kernels {
  using fold = fold_of<Lane, any_reduction>;
  __device__ static void packets(const exchange_args& args, cta_shared& shared) {
    gpu_machine m{shared};
    exchange_packets<fold>(m, args);
  }
  template <std::uint32_t Ahead>
  __device__ static void lines(const exchange_args& args, cta_shared& shared) {
    gpu_machine m{shared};
    exchange_lines<Ahead, fold>(m, args);
  }
  __device__ static void ring(const exchange_args& args, cta_shared& shared) {
    gpu_machine m{shared};
    exchange_ring<fold>(m, args);
  }
};

}  // namespace chorale::kernels

/// The ring with 512 threads at most: 128 registers, which folds of small elements with loads ahead need.
#define CHORALE_FOLD_KERNEL(name, threads, call)                           \
  extern "C" __global__ void __launch_bounds__(threads, 1)                 \
      name(const __grid_constant__ chorale::kernels::exchange_args args) { \
    __shared__ chorale::kernels::cta_shared shared;                        \
    kernels_of_this_type::call(args, shared);                              \
  }

#define CHORALE_FOLD_KERNELS(type, lane)                       \
  namespace chorale::kernels {                                 \
  using kernels_of_this_type = fold_kernels<lane>;             \
  CHORALE_FOLD_KERNEL(chorale_##type##_packets, 576, packets)  \
  CHORALE_FOLD_KERNEL(chorale_##type##_lines_1, 544, lines<1>) \
  CHORALE_FOLD_KERNEL(chorale_##type##_ring, 512, ring)        \
  }
/// Two lines ahead: 16 registers per lane are too many accumulators of 8-bit elements.
#define CHORALE_FOLD_KERNELS_AHEAD(type, lane)                 \
  CHORALE_FOLD_KERNELS(type, lane)                             \
  namespace chorale::kernels {                                 \
  CHORALE_FOLD_KERNEL(chorale_##type##_lines_2, 544, lines<2>) \
  }
