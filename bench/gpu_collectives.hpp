// Collectives other than all_reduce, beside NCCL.
#pragma once

#include "gpu_comparison.hpp"

namespace chorale::gpu_bench {

/// Those that `s.collective` names. Bytes are of the whole vector: what an all_gather ends with, a
/// reduce_scatter or all_to_all begins with, a broadcast or message moves.
void compare_collectives(const setting& s, hub_exchange& ranks, const work_stream& on);

}  // namespace chorale::gpu_bench
