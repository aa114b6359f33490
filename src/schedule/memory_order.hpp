// Whether any two accesses to one block, at least one of them a write, are ordered.
//
// By dependencies: each rank on its own. Through messages: all ranks as one graph in which a send also comes
// before its receive; `order` (see firing_order.hpp) then numbers the steps.
#pragma once

#include <chorale/schedule/program_set.hpp>

namespace chorale::schedule {

[[nodiscard]] result<> ordered_by_dependencies(const program_set& set);
[[nodiscard]] result<> ordered_through_messages(const program_set& set, std::span<const global_step> order);

}  // namespace chorale::schedule
