// `chorale bench COLL`: how long a collective on host memory takes, by size, with its result checked.
#pragma once

#include "collectives.hpp"
#include "options.hpp"
#include <chorale/chorale.hpp>

namespace chorale::bench {

/// Joins the job this process is a rank of, with the algorithm asked for, and refuses another transport than
/// the one required.
[[nodiscard]] task<communicator> join_for(const benched_collective& what, const bench_options& options);

/// Joins, and measures. Rank 0 prints. 0, or 1 if a result was wrong.
[[nodiscard]] task<int> bench_collective(const benched_collective& what, bench_options options);

}  // namespace chorale::bench
