// Entry points of the GPU kernels: one per algorithm, for two ranks and for any number.
#include <chorale/kernels/all_reduce_lines.cuh>
#include <chorale/kernels/push_bulk.cuh>

namespace ck = chorale::kernels;

extern "C" {

__global__ void __launch_bounds__(1024) chorale_packets_2(const __grid_constant__ ck::all_reduce_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::all_reduce_packets<2>(m, args);
}
__global__ void __launch_bounds__(1024) chorale_packets_n(const __grid_constant__ ck::all_reduce_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::all_reduce_packets<0>(m, args);
}
__global__ void __launch_bounds__(544) chorale_lines_2_1(const __grid_constant__ ck::all_reduce_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::all_reduce_lines<2, 1>(m, args);
}
__global__ void __launch_bounds__(544) chorale_lines_2_2(const __grid_constant__ ck::all_reduce_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::all_reduce_lines<2, 2>(m, args);
}
__global__ void __launch_bounds__(544) chorale_lines_2_4(const __grid_constant__ ck::all_reduce_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::all_reduce_lines<2, 4>(m, args);
}
__global__ void __launch_bounds__(544) chorale_lines_n(const __grid_constant__ ck::all_reduce_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::all_reduce_lines<0, 2>(m, args);
}
__global__ void __launch_bounds__(576, 1) chorale_ring_2(const __grid_constant__ ck::all_reduce_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::all_reduce_ring<2>(m, args);
}
__global__ void __launch_bounds__(576, 1) chorale_ring_n(const __grid_constant__ ck::all_reduce_args args) {
  __shared__ ck::cta_shared shared;
  ck::gpu_machine m{shared};
  ck::all_reduce_ring<0>(m, args);
}

}  // extern "C"
