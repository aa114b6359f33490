#include <chorale/async/as_result.hpp>
#include <chorale/async/io.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/transport/bootstrap/accept_loop.hpp>

namespace chorale {

task<void> half_open_limit::room() {
  while (count_ >= most_) {
    room_.reset();
    co_await room_.wait();
  }
}

task<void> accept_loop(int listener, scope& into, half_open_limit& limit,
                       std::function<task<void>(unique_fd)> converse) {
  for (;;) {
    task<result<void>> room = as_result(limit.room());
    const auto ready = co_await std::move(room);
    if (!ready) co_return;
    const auto accepted = co_await accept_one(listener);
    if (accepted) {
      limit.enter();
      into.spawn(converse(unique_fd{static_cast<int>(*accepted)}));
      continue;
    }
    if (accepted.error().os_code() == 0) co_return;
    // Out of descriptors, or a connection that died in the queue: others may still come.
    task<result<void>> pause = as_result(sleep_for(std::chrono::milliseconds{20}));
    const auto paused = co_await std::move(pause);
    if (!paused) co_return;
  }
}

}  // namespace chorale
