// Tasks whose bodies are in another translation unit, so that no compiler can elide their frames.
#pragma once

#include <chorale/async/task.hpp>

#include <memory>

namespace chorale::testing {

task<int> one_elsewhere();
task<std::unique_ptr<int>> owned_elsewhere(int value);
task<> throws_elsewhere();

}  // namespace chorale::testing
