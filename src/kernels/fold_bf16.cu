// Folds of bf16: see fold_kernels.cuh.
#include <chorale/kernels/fold_kernels.cuh>

CHORALE_FOLD_KERNELS_AHEAD(bf16, small_lane<bf16>)
