// Folds of f32: see fold_kernels.cuh.
#include <chorale/kernels/fold_kernels.cuh>

CHORALE_FOLD_KERNELS_AHEAD(f32, f32_lane)
