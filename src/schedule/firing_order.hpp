// Whether a set of programs runs to its end with bounded edges, and one order in which it does.
//
// Each edge holds at most `slots` undelivered messages. A step waits for its dependencies, for its turn on
// its edges, for the message it receives and for a free slot for the one it sends. Every one of these waits
// is for one particular step, so the question is whether that graph has a cycle; the order found does not
// matter.
#pragma once

#include <chorale/schedule/program_set.hpp>

namespace chorale::schedule {

/// All steps, each after everything it waits for; or the error that shows a cycle of waiting steps.
[[nodiscard]] result<std::vector<global_step>> firing_order(const program_set& set, std::uint32_t slots);

}  // namespace chorale::schedule
