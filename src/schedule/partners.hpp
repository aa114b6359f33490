// Ranks in pairs at distance 1, 2, 4 … when their number need not be a power of two.
//
// The largest power of two of ranks are partners, at places 0 … partners() − 1. The others are the odd ranks
// of the first pairs: they hand what they have to the even rank below them, which acts for both, and get
// their result from it. Places are in rank order. Values only.
#pragma once

#include <chorale/async/error.hpp>

#include <bit>
#include <cstdint>

namespace chorale::schedule {

class partner_places {
 public:
  explicit partner_places(rank_t ranks)
      : partners_{static_cast<rank_t>(std::bit_floor(static_cast<std::uint32_t>(ranks)))},
        folded_{ranks - partners_} {}

  [[nodiscard]] rank_t partners() const { return partners_; }
  /// This rank and one neighbour act as one.
  [[nodiscard]] bool paired(rank_t rank) const { return rank < 2 * folded_; }
  /// This rank's neighbour acts for it.
  [[nodiscard]] bool stands_aside(rank_t rank) const { return paired(rank) && rank % 2 == 1; }
  /// Precondition: !stands_aside(rank).
  [[nodiscard]] rank_t place_of(rank_t rank) const { return paired(rank) ? rank / 2 : rank - folded_; }
  /// The rank that acts at a place, which is the first one there; of `partners()`: the number of ranks.
  [[nodiscard]] rank_t rank_of(rank_t place) const { return place < folded_ ? 2 * place : place + folded_; }

 private:
  rank_t partners_;
  rank_t folded_;
};

}  // namespace chorale::schedule
