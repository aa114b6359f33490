// What every generator refuses, in one wording.
#pragma once

#include <chorale/async/error.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace chorale::schedule {

/// The error for `ranks` or `root` out of range, if so.
[[nodiscard]] inline std::optional<error> out_of_range(std::string_view algorithm, rank_t ranks,
                                                       rank_t root = 0) {
  const std::string over = std::string{algorithm} + " over " + std::to_string(ranks) + " ranks";
  if (ranks < 1) return error{errc::invalid_argument, over + ": ask for at least one"};
  if (root < 0 || root >= ranks)
    return error{errc::invalid_argument, over + ": there is no root " + std::to_string(root) +
                                             ", choose one from 0 to " + std::to_string(ranks - 1)};
  return std::nullopt;
}

}  // namespace chorale::schedule
