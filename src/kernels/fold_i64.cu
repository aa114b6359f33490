// Folds of i64, signed and unsigned: see fold_kernels.cuh.
#include <chorale/kernels/fold_kernels.cuh>

CHORALE_FOLD_KERNELS_AHEAD(i64, integer_lane<std::uint64_t>)
