// Sums of f32 between two ranks: see sum_kernels.cuh.
#include <chorale/kernels/sum_kernels.cuh>

CHORALE_SUM_KERNELS(f32, f32_lane, 1024)
