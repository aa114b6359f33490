// Folds of f64: see fold_kernels.cuh.
#include <chorale/kernels/fold_kernels.cuh>

CHORALE_FOLD_KERNELS_AHEAD(f64, f64_lane)
