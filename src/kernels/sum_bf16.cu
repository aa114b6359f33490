// Sums of bf16 between two ranks: see sum_kernels.cuh.
#include <chorale/kernels/sum_kernels.cuh>

CHORALE_SUM_KERNELS(bf16, small_lane<bf16>, 576)
