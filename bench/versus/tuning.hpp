// `chorale bench tune`: every algorithm of every collective measured on this host, and its α–β model, as
// JSON.
//
// One object: {"format": 1, "ranks", "transport", "collectives": {NAME: {ALGORITHM: {"alpha_us",
// "beta_us_per_byte", "worst_error", "points": [[bytes, us], …]}}}}. Sizes are those of `chorale bench`. A
// communicator does not read it: what rank 0 decides for all travels in 64 bits, which name an algorithm per
// collective (CHORALE_ALGO) and no costs.
#pragma once

#include "../collectives.hpp"
#include "../options.hpp"
#include <chorale/async/result.hpp>

#include <string>
#include <vector>

namespace chorale::bench::versus {

struct tuning_options {
  bench_options common;
  std::vector<const benched_collective*> collectives;
  std::string transport = "shm";
  rank_t ranks = 2;
  int samples = 3;
  std::string chorale_program;
};

/// The JSON text. Progress goes to stderr.
[[nodiscard]] result<std::string> tune(const tuning_options& options);

}  // namespace chorale::bench::versus
