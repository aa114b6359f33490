// Lowering: one rank's program and its block map become a plan (plan.hpp).
//
// Pure and thread-safe; runs at plan time, never on a hot path. Errors are errc::invalid_argument and name
// the step: a block out of range, ends of different length, a form (in place or not) the algorithm forbids.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/schedule/block_map.hpp>
#include <chorale/schedule/plan.hpp>

namespace chorale::schedule {

struct lowering_options {
  std::uint64_t element_bytes = 1;
  /// Per element of scratch that holds a running fold (see plan.hpp). 0: as element_bytes. An algorithm that
  /// has no such scratch lowers as if this were 0: its partial sums are elements.
  std::uint64_t accumulator_bytes = 0;
  /// In place, input and output offsets are from the starts of the two views the collective defines, and a
  /// copy of a block onto itself is dropped.
  placement form = placement::out_of_place;
  /// Every block is cut into this many pieces as equal as elements allow, and the schedule runs once per
  /// piece, one run behind the other on every edge: a fused step forwards piece 0 while piece 1 is still to
  /// come, and no message is longer than a piece. What cannot deadlock whole cannot deadlock in pieces,
  /// because the runs could also follow each other. All ranks must use the same number. Algorithms whose
  /// steps move runs of blocks take 1 only.
  std::uint32_t pieces = 1;
};

/// The fewest pieces that keep every message within `piece_bytes`. Equal on all ranks where the block maps
/// are (see block_map::even); for explicit tables, agree on the largest.
[[nodiscard]] std::uint32_t pieces_within(const block_map& blocks, std::uint64_t element_bytes,
                                          std::uint64_t piece_bytes) noexcept;

[[nodiscard]] result<plan> lower(const algorithm& schedule, rank_t rank, const block_map& blocks,
                                 const lowering_options& options);

}  // namespace chorale::schedule
