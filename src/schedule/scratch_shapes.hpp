// Finds out which block each scratch block is as large as, for schedules that come without that knowledge.
//
// Follows the data: a scratch block that only ever holds values of input block b is shaped like b. One that
// serves several blocks stays "any" (see scratch_shape). Pure.
#pragma once

#include <chorale/schedule/program_set.hpp>

namespace chorale::schedule {

/// Shapes per rank and scratch block. Fails where the programs cannot run: see firing_order.hpp.
[[nodiscard]] result<std::vector<std::vector<scratch_shape>>> infer_scratch_shapes(const program_set& set,
                                                                                   const definition& what);

}  // namespace chorale::schedule
