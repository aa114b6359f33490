// Awaiting a task under another environment than the awaiting coroutine's own: a new stop source, a nearer
// deadline.
#pragma once

#include <chorale/async/engine.hpp>

#include <algorithm>
#include <coroutine>
#include <utility>

namespace chorale {

/// `co_await with_environment(work, env)`: `env` must outlive the await.
template <class T>
class [[nodiscard]] with_environment {
 public:
  with_environment(task<T> work, const environment& env) noexcept : work_{std::move(work)}, env_{env} {}

  struct awaiter {
    std::coroutine_handle<typename task<T>::promise_type> child;
    const environment& env;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiting) const noexcept {
      return child.promise().start(child, waiting, &env);
    }
    T await_resume() const { return child.promise().take(); }
  };
  [[nodiscard]] awaiter operator co_await() && noexcept { return {work_.frame(), env_}; }

 private:
  task<T> work_;
  const environment& env_;
};

/// An environment that is stopped with errc::timed_out at a moment, or when its parent is.
class timed_environment {
 public:
  timed_environment(const environment& parent, time_point at)
      : stop_{parent.stop},
        env_{parent.loop, &stop_, std::min(at, parent.deadline)},
        expiry_{expired, stop_} {
    if (at != never && at <= parent.deadline) env_.loop->arm(expiry_, at);
  }
  timed_environment(const timed_environment&) = delete;
  timed_environment& operator=(const timed_environment&) = delete;
  ~timed_environment() { env_.loop->disarm(expiry_); }
  [[nodiscard]] const environment& env() const noexcept { return env_; }

 private:
  struct expiry : timer {
    expiry(function fired, stop_source& stopped) noexcept : timer{fired}, stop{stopped} {}
    stop_source& stop;
  };
  static void expired(operation& op) noexcept { static_cast<expiry&>(op).stop.request_stop(errc::timed_out); }

  stop_source stop_;
  environment env_;
  expiry expiry_;
};

/// Runs `work` and asks it to stop at `at`. It ends with what it had achieved, or with errc::timed_out: an
/// operation that completed is never reported as late.
template <class T>
task<T> with_deadline(time_point at, task<T> work) {
  const environment& outer = co_await this_environment{};
  const timed_environment limited{outer, at};
  with_environment<T> bounded{std::move(work), limited.env()};
  co_return co_await std::move(bounded);
}

template <class T>
task<T> with_timeout(duration in, task<T> work) {
  const environment& outer = co_await this_environment{};
  const time_point at = deadline{in}.from(outer.loop->now());
  const timed_environment limited{outer, at};
  with_environment<T> bounded{std::move(work), limited.env()};
  co_return co_await std::move(bounded);
}

}  // namespace chorale
