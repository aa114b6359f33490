// Folds of f8e4m3: see fold_kernels.cuh.
#include <chorale/kernels/fold_kernels.cuh>

CHORALE_FOLD_KERNELS(f8e4m3, small_lane<f8e4m3>)
