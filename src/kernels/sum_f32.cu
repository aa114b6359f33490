// Entry points of the f32 sum between two ranks, the operation that latency is measured by: nothing but it.
#include <chorale/kernels/exchange_lines.cuh>
#include <chorale/kernels/push_bulk.cuh>

namespace ck = chorale::kernels;
using f32_sum = ck::fold_of<ck::f32_lane, chorale::reduction::sum>;

extern "C" {

__global__ void __launch_bounds__(1024, 1)
    chorale_f32_sum_packets_2(const __grid_constant__ ck::pair_args args) {
  __shared__ ck::cta_shared shared;
  ck::pair_machine m{shared};
  ck::exchange_packets<f32_sum>(m, ck::of_pair(args));
}
__global__ void __launch_bounds__(544, 1)
    chorale_f32_sum_lines_2_1(const __grid_constant__ ck::pair_args args) {
  __shared__ ck::cta_shared shared;
  ck::pair_machine m{shared};
  ck::exchange_lines<1, f32_sum>(m, ck::of_pair(args));
}
__global__ void __launch_bounds__(544, 1)
    chorale_f32_sum_lines_2_2(const __grid_constant__ ck::pair_args args) {
  __shared__ ck::cta_shared shared;
  ck::pair_machine m{shared};
  ck::exchange_lines<2, f32_sum>(m, ck::of_pair(args));
}
__global__ void __launch_bounds__(544, 1)
    chorale_f32_sum_lines_2_4(const __grid_constant__ ck::pair_args args) {
  __shared__ ck::cta_shared shared;
  ck::pair_machine m{shared};
  ck::exchange_lines<4, f32_sum>(m, ck::of_pair(args));
}
__global__ void __launch_bounds__(576, 1) chorale_f32_sum_ring_2(const __grid_constant__ ck::pair_args args) {
  __shared__ ck::cta_shared shared;
  ck::pair_machine m{shared};
  ck::exchange_ring<f32_sum>(m, ck::of_pair(args));
}

}  // extern "C"
