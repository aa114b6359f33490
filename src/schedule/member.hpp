// One rank's view of the others, for generators that visit every peer.
#pragma once

#include <chorale/schedule/schedule.hpp>

namespace chorale::schedule {

/// Peers are visited at distance 1, 2, … so that no rank is everyone's first target.
struct member {
  rank_t rank;
  rank_t ranks;
  [[nodiscard]] rank_t after(rank_t distance) const { return (rank + distance) % ranks; }
  [[nodiscard]] rank_t before(rank_t distance) const { return (rank + ranks - distance) % ranks; }
};

/// A single block, numbered like a rank.
[[nodiscard]] constexpr block_ref one(space where, rank_t block) {
  return {where, static_cast<std::uint32_t>(block), 1};
}

}  // namespace chorale::schedule
