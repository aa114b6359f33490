// Accepting connections while bounding how many of them have not introduced themselves yet.
//
// One thread. The listener stays the caller's and outlives the loop.
#pragma once

#include <chorale/async/event.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/transport/socket.hpp>

#include <cstdint>
#include <functional>

namespace chorale {

/// Connections between accept and the end of their hello.
class half_open_limit {
 public:
  explicit half_open_limit(std::size_t most) noexcept : most_{most} {}
  void enter() noexcept { ++count_; }
  void leave() noexcept {
    --count_;
    room_.set();
  }
  /// Ends when another connection may come; throws `failure` on a stop request.
  task<void> room();

 private:
  std::size_t most_;
  std::size_t count_ = 0;
  event room_;
};

/// Spawns `converse(fd)` into `into` for every connection, until stopped. `converse` calls `limit.leave()`
/// once, after the hello.
task<void> accept_loop(int listener, scope& into, half_open_limit& limit,
                       std::function<task<void>(unique_fd)> converse);

}  // namespace chorale
