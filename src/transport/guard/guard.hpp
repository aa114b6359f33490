// The process's guard: learns of deaths, silence and leaving, and passes revokes on, while the application is
// busy elsewhere.
//
// One sleeping *watch* thread per process (robust futexes, doorbells, deadlines; more only when it must wait
// for over 127 words) and, once a membership has control links, one *control* thread (epoll). Both are plain
// threads by design: they must run while every engine computes. They set words and ring doorbells; they
// touch no data ring and make no CUDA call.
//
// `process()` gives the one guard of this process, made at the first call and kept alive by its memberships
// and by whoever holds the pointer; the threads start with the first membership and are joined when the last
// owner goes. It must not be dropped from inside a sink call. In a fork child `process()` makes a fresh one.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/transport/guard/guard_options.hpp>
#include <chorale/transport/guard/membership.hpp>

#include <memory>

namespace chorale {

namespace guarding {
class watcher;
}

class guard {
 public:
  /// The guard of this process, with options from the environment; throws `failure` when these make no sense.
  [[nodiscard]] static std::shared_ptr<guard> process();
  /// Likewise with given options; they count only for the caller who makes the guard.
  [[nodiscard]] static std::shared_ptr<guard> process(const guard_options& options);

  guard(const guard&) = delete;
  guard& operator=(const guard&) = delete;
  ~guard();

  /// Enters rank `setup.self` into an epoch. `sink` must outlive the membership. On return this process's
  /// words stand in the segment; host-mates that join later find them. errc::invalid_argument (ranks, slots
  /// or descriptors that do not fit), errc::protocol_error (not this segment), errc::system_error (no thread
  /// or descriptor to be had), errc::forked.
  [[nodiscard]] result<membership> join(membership_setup setup, guard_sink& sink);

  [[nodiscard]] const guard_options& options() const noexcept;

 private:
  explicit guard(std::shared_ptr<guarding::watcher> watcher) noexcept;
  std::shared_ptr<guarding::watcher> watcher_;
};

/// True in a child of fork() (or clone without exec) of a process that had a guard, for objects made before.
[[nodiscard]] bool forked() noexcept;

}  // namespace chorale
