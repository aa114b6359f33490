// Time as the library sees it: a steady clock whose readings an engine's backend provides, so that a
// simulator can own it. Deadlines are absolute and travel down the await chain.
#pragma once

#include <chrono>

namespace chorale {

using duration = std::chrono::nanoseconds;
using time_point = std::chrono::time_point<std::chrono::steady_clock, duration>;

/// "No deadline."
inline constexpr time_point never = time_point::max();

/// The machine's steady clock (CLOCK_MONOTONIC).
[[nodiscard]] inline time_point steady_now() noexcept { return std::chrono::steady_clock::now(); }

/// A limit on one call, either absolute or counted from the call. Local: it is no part of what ranks must
/// agree on.
class deadline {
 public:
  constexpr deadline() = default;
  explicit constexpr deadline(time_point at) : at_{at} {}
  explicit constexpr deadline(duration in) : in_{in} {}

  [[nodiscard]] constexpr bool is_set() const noexcept { return at_ != never || in_ != duration::max(); }
  /// The moment it ends, for a call made at `call`.
  [[nodiscard]] constexpr time_point from(time_point call) const noexcept {
    if (at_ != never || in_ == duration::max()) return at_;
    return in_ >= never - call ? never : call + in_;
  }

 private:
  time_point at_ = never;
  duration in_ = duration::max();
};

}  // namespace chorale
