// Puts one schedule's program inside another's: how hierarchies are made of plain algorithms.
//
// The inner algorithm keeps its own ranks and blocks; the nesting says which of ours they are. Its steps wait
// for `after`, and what it leaves to wait for is returned, so the next phase can name it. Inner input and
// output mapped to one place are the in-place form, which the inner algorithm must allow. Single blocks only.
#pragma once

#include <chorale/schedule/schedule.hpp>

#include <span>
#include <vector>

namespace chorale::schedule {

struct nesting {
  std::span<const rank_t> ranks;  ///< by inner rank
  std::span<const block_ref> in;  ///< by inner block: where it lies in the outer program
  std::span<const block_ref> out;
  std::span<const step_index> after;
};

/// Appends `inner`'s steps; returns those that nothing of `inner` waits for.
std::vector<step_index> add_nested(rank_program& outer, const rank_program& inner, const nesting& where);

}  // namespace chorale::schedule
