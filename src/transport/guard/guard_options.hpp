// How patient a process's guard is. A plain value, read once when the guard starts.
#pragma once

#include <chorale/async/result.hpp>

#include <chrono>

namespace chorale {

/// What the guard does about SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS and std::terminate.
enum class fatal_signals {
  announce,     ///< tell the peers "dying, signal N" first, then chain on to what was installed before
  leave_alone,  ///< install nothing: for programs that recover from such signals
};

struct guard_options {
  /// A rank whose guard answers nothing for so long is errc::peer_unresponsive; zero: never.
  std::chrono::nanoseconds peer_timeout = std::chrono::seconds{30};
  /// An operation pending for longer makes the guard ask the ranks it waits for.
  std::chrono::nanoseconds question_after = std::chrono::seconds{1};
  /// A control link whose bytes stay unacknowledged for so long is errc::link_lost.
  std::chrono::nanoseconds link_timeout = std::chrono::seconds{5};
  fatal_signals signals = fatal_signals::announce;

  /// The defaults, changed by CHORALE_PEER_TIMEOUT (seconds, fractions allowed, 0 = never),
  /// CHORALE_LINK_TIMEOUT (seconds) and CHORALE_FATAL_SIGNALS (announce | leave_alone).
  /// errc::invalid_argument names the variable that makes no sense.
  [[nodiscard]] static result<guard_options> from_environment();
};

}  // namespace chorale
