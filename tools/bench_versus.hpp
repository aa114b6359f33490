// `chorale bench COLL --vs …`, once its options are read: finds the peers' programs, says which are left out
// and why, and compares.
#pragma once

#include "../bench/versus/comparison.hpp"

#include <string>
#include <vector>

namespace chorale::tools {

struct versus_request {
  bench::bench_options options;
  bench::versus::match what;
  std::vector<std::string> peers;  ///< "openmpi", "gloo"
  int alternations = 5;
};

/// The exit code: 0, or 1 when a result was wrong or there was nothing to compare with.
int run_versus(versus_request request);

}  // namespace chorale::tools
