// The children that the runtime bench awaits: their bodies are out of the compiler's sight.
#pragma once

#include <chorale/async/task.hpp>

namespace chorale::bench {

task<int> runtime_child(int value);

}  // namespace chorale::bench
