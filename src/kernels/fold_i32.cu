// Folds of i32, signed and unsigned: see fold_kernels.cuh.
#include <chorale/kernels/fold_kernels.cuh>

CHORALE_FOLD_KERNELS_AHEAD(i32, integer_lane<std::uint32_t>)
