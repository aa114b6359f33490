// Folds of i8, signed and unsigned: see fold_kernels.cuh.
#include <chorale/kernels/fold_kernels.cuh>

CHORALE_FOLD_KERNELS(i8, integer_lane<std::uint8_t>)
