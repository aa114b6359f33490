// `chorale bench serve`: chorale's own side of a comparison, speaking peers/protocol.hpp on stdin and stdout
// of rank 0. Started by the driver, like its peers.
#pragma once

#include <chorale/chorale.hpp>

#include <string>

namespace chorale::bench {

/// Joins and serves until stdin ends. `algorithms` as communicator_options takes them.
[[nodiscard]] task<int> serve(std::string algorithms);

}  // namespace chorale::bench
