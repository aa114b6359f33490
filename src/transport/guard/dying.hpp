// The last words of a crashing process: "dying, signal N", written before anything slow happens.
//
// A core dump delays every sign of death by seconds (measured: 6.5 s for 2 GiB), so fatal signals and
// std::terminate first write the state line of every membership, mark the robust words, wake the watchers and
// send a `death` frame down each control link; then they chain on to whatever was installed before, so
// that handlers of others, core dumps and exit codes stay as they were.
// Whoever installs a handler later and does not chain on hides the signal; the robust futexes still tell.
//
// `announcer` is one membership's part, registered while the membership lives. What it points to must stay
// mapped until it is withdrawn. Announcing allocates nothing, takes no lock and calls only
// async-signal-safe functions. Signal dispositions and the terminate handler belong to the process, so the
// registry is process-wide too.
#pragma once

#include <chorale/transport/guard/frame.hpp>
#include <chorale/transport/guard/guard_segment.hpp>

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

namespace chorale::guarding {

class announcer {
 public:
  struct watcher {
    robust_node* word;
    bell_line* bell;
    const member_line* line;
    int bell_fd;
  };
  struct link {
    std::atomic<int> socket{-1};
    std::atomic<bool> between_frames{true};
  };

  member_line* own = nullptr;
  std::vector<watcher> watchers;
  std::deque<link> links;  // a deque: its elements stay where they are
  frame last_words;        // `detail` is filled in when the time comes
  pid_t process = 0;

  /// Async-signal-safe. Once only: the first reason stands, and a member that left says nothing.
  void announce(std::int32_t detail) noexcept;
};

/// Keeps an announcer registered.
class announcement {
 public:
  explicit announcement(announcer& a);
  announcement(const announcement&) = delete;
  announcement& operator=(const announcement&) = delete;
  ~announcement();

 private:
  std::atomic<announcer*>* place_;
};

/// Has the handlers installed while it lives; the last one to go restores what was there, unless somebody
/// else has installed his own since.
class fatal_signal_handlers {
 public:
  fatal_signal_handlers();
  fatal_signal_handlers(const fatal_signal_handlers&) = delete;
  fatal_signal_handlers& operator=(const fatal_signal_handlers&) = delete;
  ~fatal_signal_handlers();
};

}  // namespace chorale::guarding
