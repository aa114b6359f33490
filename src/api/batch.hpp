// Several calls as one: what `communicator::batch` and `lane::batch` run.
#pragma once

#include <chorale/api/description.hpp>
#include <chorale/api/ticket.hpp>
#include <chorale/async/task.hpp>

#include <vector>

namespace chorale::detail {

/// Starts all and awaits all; throws the first failure in the order of the calls when every one has ended.
[[nodiscard]] task<void> run_batch(std::vector<ticket> calls);

}  // namespace chorale::detail
