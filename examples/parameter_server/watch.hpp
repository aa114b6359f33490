// Looking on: follows the versions, shows how well the parameters read, and the table at the end.
#pragma once

#include "digits/dataset.hpp"
#include <chorale/chorale.hpp>

#include <string>
#include <vector>

namespace parameter_server {

struct watch_options {
  std::vector<std::string> servers;
  std::string secret;
  std::size_t steps = 10;  ///< lines or steps of the bar on the way
  bool once = false;       ///< only tells how it stands now
  bool stop = false;       ///< ends the servers afterwards
};

/// Until the training is over, or at once.
[[nodiscard]] chorale::task<> watch(watch_options options, const digits::dataset& test,
                                    std::vector<std::size_t> widths);

}  // namespace parameter_server
