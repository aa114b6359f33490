// Scans in one step: every rank has the vectors of all ranks below sent to it and folds them itself. For few
// ranks and short vectors, and where a fold must be rounded only once.

#include <chorale/schedule/generator_arguments.hpp>
#include <chorale/schedule/slice_fold.hpp>

namespace chorale::schedule {
namespace {

rank_program scan_program(rank_t rank, rank_t ranks, bool inclusive, fold_style style) {
  rank_program program;
  const rank_t parts = inclusive ? rank + 1 : rank;
  slice_fold fold{.rank = rank,
                  .ranks = parts,
                  .own = {space::in, 0, 1},
                  .result = block_ref{space::out, 0, 1},
                  .style = style,
                  .sums = partial_sums::in_accumulators};
  // In place, the result lands where the input is.
  for (rank_t above = rank + 1; above < ranks; ++above)
    fold.result_after.push_back(program.add({.kind = step_kind::send, .send_to = above, .src = fold.own}));
  if (parts > 0) add_fold(program, fold);
  return program;
}

algorithm direct(collective what, rank_t ranks, fold_style style) {
  const bool inclusive = what == collective::scan;
  return {"direct, " + std::string{name_of(style)},
          definition{.what = what, .ranks = ranks},
          [=](rank_t rank) { return scan_program(rank, ranks, inclusive, style); },
          placement_support::both,
          step_unit::block,
          share_lengths::each_end_knows};
}

}  // namespace

result<algorithm> direct_scan(rank_t ranks, fold_style fold) {
  if (auto refused = out_of_range("direct scan", ranks)) return *refused;
  return direct(collective::scan, ranks, fold);
}

result<algorithm> direct_exscan(rank_t ranks, fold_style fold) {
  if (auto refused = out_of_range("direct exscan", ranks)) return *refused;
  return direct(collective::exscan, ranks, fold);
}

}  // namespace chorale::schedule
