// The binomial tree over n ranks with any root: who is whose parent, and which ranks a subtree holds.
//
// Ranks are renumbered so that the root is place 0: place p stands for rank (p + root) mod n. The subtree of
// place p > 0 is the run of places from p to p + (lowest set bit of p), cut at n; so every subtree is a run
// of ranks, which wraps around at most once. Values only.
#pragma once

#include <chorale/schedule/schedule.hpp>

#include <algorithm>
#include <vector>

namespace chorale::schedule {

/// Places first … last − 1.
struct place_run {
  rank_t first = 0;
  rank_t last = 0;
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(last - first); }
};

class binomial_tree {
 public:
  binomial_tree(rank_t ranks, rank_t root, rank_t rank)
      : ranks_{ranks}, root_{root}, place_{(rank - root + ranks) % ranks} {}

  [[nodiscard]] bool is_root() const { return place_ == 0; }
  [[nodiscard]] rank_t rank_of(rank_t place) const { return (place + root_) % ranks_; }
  /// Precondition: not the root.
  [[nodiscard]] rank_t parent() const { return rank_of(place_ & (place_ - 1)); }
  [[nodiscard]] place_run subtree() const { return subtree_of(place_); }
  /// The subtrees of my children, the smallest, which is also the nearest, first.
  [[nodiscard]] std::vector<place_run> children() const {
    std::vector<place_run> all;
    const rank_t mine = is_root() ? ranks_ : place_ & -place_;
    for (rank_t distance = 1; distance < mine && place_ + distance < ranks_; distance *= 2)
      all.push_back(subtree_of(place_ + distance));
    return all;
  }
  /// The lowest rank in a run.
  [[nodiscard]] rank_t lowest(place_run run) const {
    const rank_t of_rank_0 = (ranks_ - root_) % ranks_;
    return of_rank_0 >= run.first && of_rank_0 < run.last ? 0 : rank_of(run.first);
  }
  /// The run cut where the ranks wrap around: one or two runs of rising ranks.
  [[nodiscard]] std::vector<place_run> without_wrap(place_run run) const {
    const rank_t wrap = ranks_ - root_;
    if (run.first < wrap && wrap < run.last) return {{run.first, wrap}, {wrap, run.last}};
    return {run};
  }

 private:
  [[nodiscard]] place_run subtree_of(rank_t place) const {
    return {place, place == 0 ? ranks_ : std::min(ranks_, place + (place & -place))};
  }

  rank_t ranks_;
  rank_t root_;
  rank_t place_;
};

}  // namespace chorale::schedule
