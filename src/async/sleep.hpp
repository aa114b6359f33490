// Waiting for a moment of the engine's clock.
#pragma once

#include <chorale/async/suspension.hpp>

namespace chorale {

/// `co_await sleep_until(at)`; throws `failure` with the reason if a stop is requested first.
class [[nodiscard]] sleep_until : public suspension {
 public:
  explicit sleep_until(time_point at) noexcept : suspension{on_stop}, alarm_{fired, *this}, at_{at} {}

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <environment_promise Promise>
  bool await_suspend(std::coroutine_handle<Promise> waiting) {
    if (!suspend(waiting, waiting.promise().env())) return stopped_ = true, false;
    loop().arm(alarm_, at_);
    return true;
  }
  void await_resume() const {
    if (stopped_) throw failure{error{stop_reason()}};
  }

 private:
  struct alarm : timer {
    alarm(function f, sleep_until& s) noexcept : timer{f}, sleeper{s} {}
    sleep_until& sleeper;
  };
  static void fired(operation& op) noexcept { static_cast<alarm&>(op).sleeper.finish(); }
  static void on_stop(suspension& base) noexcept {
    auto& self = static_cast<sleep_until&>(base);
    self.stopped_ = true;
    self.loop().disarm(self.alarm_);
    self.finish();
  }

  alarm alarm_;
  time_point at_;
  bool stopped_ = false;
};

inline task<void> sleep_for(duration in) {
  const environment& here = co_await this_environment{};
  const time_point at = deadline{in}.from(here.loop->now());
  co_await sleep_until{at};
}

/// Lets everything else that is ready run first.
struct [[nodiscard]] yield : operation {
  yield() noexcept : operation{resume} {}
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <environment_promise Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    waiting = handle;
    handle.promise().env()->loop->schedule(*this);
  }
  void await_resume() const noexcept {}

 private:
  static void resume(operation& op) noexcept { static_cast<yield&>(op).waiting.resume(); }
  std::coroutine_handle<> waiting;
};

}  // namespace chorale
