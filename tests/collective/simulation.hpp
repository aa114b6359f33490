// One seed, played: as many ranks as it says on one engine with a virtual clock, and a judgement of every
// end.
#pragma once

#include "simulated_scenario.hpp"
#include <chorale/async/scope.hpp>
#include <chorale/collective/core.hpp>
#include <chorale/collective/simulated_guard.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace chorale::testing {

/// Faults of the library, planted to see that the simulation finds them.
enum class planted : std::uint8_t {
  nothing,
  skipped_signature_check,  ///< arrivals carry whatever signature the receiver expects
  dropped_forward,          ///< a guard that hears of a cause does not pass it on
  lost_lane_revoke,         ///< one frame that tells of a lane's end is lost
  slot_reused_early,        ///< a sender writes to a slot that is not read yet
};

/// Plans by number of ranks, kept from seed to seed.
using plan_store = std::map<rank_t, std::vector<plan_cache>>;

struct judgement {
  std::vector<std::string> complaints;  ///< empty: right answer or right error, on every rank
  std::uint64_t digest = 0;
  std::size_t successes = 0;
  std::size_t failures = 0;
};

[[nodiscard]] judgement play(const scenario& s, plan_store& plans, planted bug = planted::nothing,
                             bool print_trace = false);

}  // namespace chorale::testing
