// Entry points of the sum of one type between two ranks, the operation that most traffic is: nothing but it,
// so that loads and rounding are scheduled for it.
//
// A source file names its type: CHORALE_SUM_KERNELS(bf16, small_lane<bf16>, 576). The number bounds the
// threads of its packets.
#pragma once

#include <chorale/kernels/exchange_lines.cuh>
#include <chorale/kernels/push_bulk.cuh>

namespace chorale::kernels {

/// Kernel functions of a lane type, as the entry points call them.
template <class Lane>
struct sum_kernels {
  using fold = fold_of<Lane, reduction::sum>;
  __device__ static void packets(const exchange_args& args, cta_shared& shared) {
    pair_machine m{shared};
    exchange_packets<fold>(m, args);
  }
  template <std::uint32_t Ahead>
  __device__ static void lines(const exchange_args& args, cta_shared& shared) {
    pair_machine m{shared};
    exchange_lines<Ahead, fold>(m, args);
  }
  __device__ static void ring(const exchange_args& args, cta_shared& shared) {
    pair_machine m{shared};
    exchange_ring<fold>(m, args);
  }
};

}  // namespace chorale::kernels

#define CHORALE_SUM_KERNEL(name, threads, call)                        \
  extern "C" __global__ void __launch_bounds__(threads, 1)             \
      name(const __grid_constant__ chorale::kernels::pair_args args) { \
    __shared__ chorale::kernels::cta_shared shared;                    \
    sums_of_this_type::call(chorale::kernels::of_pair(args), shared);  \
  }

#define CHORALE_SUM_KERNELS(type, lane, packet_threads)                       \
  namespace chorale::kernels {                                                \
  using sums_of_this_type = sum_kernels<lane>;                                \
  CHORALE_SUM_KERNEL(chorale_##type##_sum_packets_2, packet_threads, packets) \
  CHORALE_SUM_KERNEL(chorale_##type##_sum_lines_2_1, 544, lines<1>)           \
  CHORALE_SUM_KERNEL(chorale_##type##_sum_lines_2_2, 544, lines<2>)           \
  CHORALE_SUM_KERNEL(chorale_##type##_sum_lines_2_4, 544, lines<4>)           \
  CHORALE_SUM_KERNEL(chorale_##type##_sum_ring_2, 576, ring)                  \
  }
