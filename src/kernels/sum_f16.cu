// Sums of f16 between two ranks: see sum_kernels.cuh.
#include <chorale/kernels/sum_kernels.cuh>

CHORALE_SUM_KERNELS(f16, small_lane<f16>, 576)
