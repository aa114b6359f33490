// Folds of f8e5m2: see fold_kernels.cuh.
#include <chorale/kernels/fold_kernels.cuh>

CHORALE_FOLD_KERNELS(f8e5m2, small_lane<f8e5m2>)
