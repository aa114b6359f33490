// What every block holds after the steps have run, in terms of whose inputs went in: the checker's last pass.
//
// A value is the input block it stems from, the set of ranks that contributed (exact, or as a random sum) and
// a hash of the expression that made it. Faults name the step that joins what does not belong together, takes
// a contribution twice or reads what nobody wrote; or the last writer of an output block that is wrong.
#pragma once

#include <chorale/schedule/checker.hpp>
#include <chorale/schedule/program_set.hpp>

namespace chorale::schedule {

/// Runs all steps in `order` and judges the outputs; returns what is known about the expressions.
[[nodiscard]] result<expression> check_contributions(const program_set& set, const definition& what,
                                                     std::span<const global_step> order,
                                                     const check_options& options);

}  // namespace chorale::schedule
