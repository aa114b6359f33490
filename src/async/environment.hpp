// What flows down an await chain: the engine to resume on and the stop source to heed.
//
// A parent's promise hands its environment to each child at the moment of the await. An environment belongs
// to an engine (its root), a scope or a `with_deadline`, and outlives every task below it.
#pragma once

#include <chorale/async/clock.hpp>
#include <chorale/async/stop.hpp>

#include <concepts>
#include <coroutine>

namespace chorale {

class engine;

struct environment {
  engine* loop = nullptr;
  stop_source* stop = nullptr;  ///< null: nobody will ever ask
  time_point deadline = never;  ///< the nearest enclosing one

  [[nodiscard]] bool stop_requested() const noexcept { return stop && stop->stop_requested(); }
};

/// A promise that knows its environment. Coroutines of other libraries do not; our operations then rely on
/// the engine of the object they belong to.
template <class Promise>
concept environment_promise = requires(const Promise& promise) {
  { promise.env() } -> std::convertible_to<const environment*>;
};

template <class Promise>
[[nodiscard]] const environment* environment_of(std::coroutine_handle<Promise> waiting) noexcept {
  if constexpr (environment_promise<Promise>)
    return waiting.promise().env();
  else
    return nullptr;
}

/// `const environment& here = co_await this_environment();`
struct this_environment {
  struct awaiter {
    const environment* found = nullptr;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <environment_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> waiting) noexcept {
      found = waiting.promise().env();
      return false;
    }
    [[nodiscard]] const environment& await_resume() const noexcept { return *found; }
  };
  awaiter operator co_await() const noexcept { return {}; }
};

}  // namespace chorale
