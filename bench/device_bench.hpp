// `chorale bench COLL --device cuda`: the same on GPU memory, through the communicator, one process per GPU;
// with --vs nccl beside NCCL in the same processes.
//
// Per size: every element of one call is checked; then repeats, in each of which every contender is timed
// once, back to back on one stream, or as one graph of many calls with --graph. Medians of the ranks' mean.
// NCCL is taken at its better of default and 32 channels. Plain cudaMalloc-like buffers on both sides, input
// and output apart.
#pragma once

#include "collectives.hpp"
#include "options.hpp"
#include <chorale/async/task.hpp>

namespace chorale::bench {

struct device_bench_options {
  bench_options common;
  bool graph = false;
  bool versus_nccl = false;
  int repeats = 7;
};

/// Joins the job and measures; rank 0 prints. 0, or 1 if a result was wrong.
[[nodiscard]] task<int> bench_on_device(const benched_collective& what, device_bench_options options);

}  // namespace chorale::bench
