// How each side of a comparison is started, and the ways of a peer of which its best counts.
#pragma once

#include "../collectives.hpp"
#include "contestant.hpp"

#include <string>
#include <vector>

namespace chorale::bench::versus {

struct match {
  const benched_collective* what = nullptr;
  std::string transport;  ///< "shm" or "tcp"
  rank_t ranks = 2;
};

/// chorale itself; `algorithm` empty: its own choice.
[[nodiscard]] contestant_plan own_plan(const match& m, const std::string& chorale_program,
                                       const std::string& algorithm);
/// Open MPI's ways over this transport.
[[nodiscard]] std::vector<contestant_plan> openmpi_plans(const match& m, const std::string& peer_program);
/// Gloo's; none over shared memory, which it does not use.
[[nodiscard]] std::vector<contestant_plan> gloo_plans(const match& m, const std::string& peer_program);

}  // namespace chorale::bench::versus
