// How the owner of a slice folds everyone's part of it, in rank order, whatever its own rank.
//
// In the output: the running fold lives where the result is wanted, which saves memory and a pass; the ranks
// below the owner are folded apart first, because its own part must not come before theirs. In accumulators:
// the running fold lives in scratch that lowering may widen, and is rounded once, on its way to the result
// (see plan.hpp). With two ranks there is one operation and nothing to keep.
#pragma once

#include <chorale/schedule/generators.hpp>

#include <optional>
#include <vector>

namespace chorale::schedule {

struct slice_fold {
  rank_t rank = 0;
  rank_t ranks = 1;                 ///< parts come from ranks 0 … ranks − 1; mine is among them if I am
  block_ref own;                    ///< my part, in my input
  std::optional<block_ref> result;  ///< where the sum goes; none: nowhere here
  rank_t send_to = no_rank;         ///< who gets the sum besides; no_rank: nobody
  fold_style style = fold_style::staged;
  partial_sums sums = partial_sums::in_output;  ///< in_output needs `result` and my part
  std::vector<step_index> result_after;  ///< in_accumulators: what must be over before `result` is written
};

/// Adds the receives and reductions; returns the step after which result and message are made.
step_index add_fold(rank_program& program, const slice_fold& what);

}  // namespace chorale::schedule
