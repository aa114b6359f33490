// task<T>: a coroutine that starts when awaited and resumes its awaiter when it ends.
//
// Lazy and move-only; awaited once, as an rvalue. The value or exception lives in the frame; frames come from
// the thread's pool. Nothing is atomic: a task belongs to the thread that awaits it. Destroying a task that
// never ran is fine; destroying one that is suspended inside is the caller's error, which scopes make
// impossible.
//
// Control passes by symmetric transfer where the compiler makes that a tail call. Unoptimised and sanitizer
// builds do not, so there each hop goes through the engine's ready queue: a million synchronous awaits need
// no stack (GCC PR94794; the same holds for clang at -O0).
#pragma once

#include <chorale/async/environment.hpp>
#include <chorale/async/frame_pool.hpp>
#include <chorale/async/operation.hpp>

#include <cassert>
#include <concepts>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define CHORALE_TRANSFER_IS_TAIL_CALL 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CHORALE_TRANSFER_IS_TAIL_CALL 0
#endif
#endif
#ifndef CHORALE_TRANSFER_IS_TAIL_CALL
#define CHORALE_TRANSFER_IS_TAIL_CALL 1
#endif

namespace chorale {

template <class T = void>
class task;

namespace detail {

inline constexpr bool transfer_is_tail_call = CHORALE_TRANSFER_IS_TAIL_CALL != 0;

/// Queues a resumption on the environment's engine; returns false when there is none.
bool schedule_on(const environment* env, operation& op) noexcept;

/// A resumption on its way through the ready queue.
struct hop : operation {
  explicit hop(std::coroutine_handle<> to) noexcept : operation{resume}, target{to} {}
  std::coroutine_handle<> target;
  static void resume(operation& op) noexcept { static_cast<hop&>(op).target.resume(); }
};

// The layout does not depend on how this translation unit transfers control: an unoptimised program may use
// an optimised library.
class promise_base : public pooled_frame {
 public:
  promise_base() noexcept {}
  promise_base(const promise_base&) = delete;
  promise_base& operator=(const promise_base&) = delete;

  [[nodiscard]] const environment* env() const noexcept { return env_; }
  [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }

  struct final_awaiter {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    void await_resume() const noexcept {}
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
      return ended.promise().transfer_to(ended.promise().waiting_);
    }
  };
  [[nodiscard]] final_awaiter final_suspend() const noexcept { return {}; }

  /// Called by the awaiter before the first resumption; returns whom to resume now.
  std::coroutine_handle<> start(std::coroutine_handle<> self, std::coroutine_handle<> waiting,
                                const environment* env) noexcept {
    env_ = env;
    waiting_ = waiting;
    return transfer_to(self);
  }

 private:
  std::coroutine_handle<> transfer_to(std::coroutine_handle<> next) noexcept {
    if constexpr (!transfer_is_tail_call) {
      if (schedule_on(env_, *::new (&hop_) hop{next})) return std::noop_coroutine();
    }
    return next;
  }

  const environment* env_ = nullptr;
  std::coroutine_handle<> waiting_;
  union {
    hop hop_;  // alive only while queued
  };
};

/// Where a coroutine's end is kept until its awaiter takes it. By hand, because a variant's destructor is
/// dear on this path.
template <class T>
class task_promise : public promise_base {
 public:
  task_promise() noexcept {}
  ~task_promise() {
    if (state_ == state::value) std::destroy_at(&value_);
    if (state_ == state::failed) std::destroy_at(&failure_);
  }
  task<T> get_return_object() noexcept;
  template <std::convertible_to<T> U>
  void return_value(U&& value) {
    ::new (&value_) T(std::forward<U>(value));
    state_ = state::value;
  }
  void unhandled_exception() noexcept {
    ::new (&failure_) std::exception_ptr{std::current_exception()};
    state_ = state::failed;
  }
  T take() {
    if (state_ == state::failed) std::rethrow_exception(std::move(failure_));
    return std::move(value_);
  }

 private:
  enum class state : std::uint8_t { running, value, failed };
  union {
    T value_;
    std::exception_ptr failure_;
  };
  state state_ = state::running;
};

template <>
class task_promise<void> : public promise_base {
 public:
  task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void unhandled_exception() noexcept { failed_ = std::current_exception(); }
  void take() {
    if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  }

 private:
  std::exception_ptr failed_;
};

}  // namespace detail

template <class T>
class [[nodiscard]] task {
 public:
  using promise_type = detail::task_promise<T>;
  using value_type = T;

  task(task&& other) noexcept : frame_{std::exchange(other.frame_, {})} {}
  task& operator=(task&& other) noexcept {
    std::swap(frame_, other.frame_);
    return *this;
  }
  ~task() {
    if (frame_) frame_.destroy();
  }

  struct awaiter {
    std::coroutine_handle<promise_type> child;
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> waiting) noexcept {
      return child.promise().start(child, waiting, environment_of(waiting));
    }
    T await_resume() { return child.promise().take(); }
  };
  [[nodiscard]] awaiter operator co_await() && noexcept {
    assert(frame_ && "awaiting a task that was moved from");
    return {frame_};
  }

  /// Gives the frame up, never to be freed: for what can not go on and holds what may not be destroyed.
  void abandon() noexcept { abandon_frame(std::exchange(frame_, {}).address()); }

  /// For drivers: the frame stays owned by this task.
  [[nodiscard]] std::coroutine_handle<promise_type> frame() const noexcept { return frame_; }

 private:
  friend promise_type;
  explicit task(std::coroutine_handle<promise_type> frame) noexcept : frame_{frame} {}
  std::coroutine_handle<promise_type> frame_;
};

namespace detail {

template <class T>
task<T> task_promise<T>::get_return_object() noexcept {
  return task<T>{std::coroutine_handle<task_promise>::from_promise(*this)};
}
inline task<void> task_promise<void>::get_return_object() noexcept {
  return task<void>{std::coroutine_handle<task_promise>::from_promise(*this)};
}

/// The coroutine at the root of a chain: it ends by calling `operation::run` of a node its owner provides.
struct root_coroutine {
  struct promise_type : pooled_frame {
    const environment* environment_used;
    promise_type() noexcept : environment_used{nullptr} {}
    [[nodiscard]] const environment* env() const noexcept { return environment_used; }
    root_coroutine get_return_object() noexcept {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
    [[nodiscard]] std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };
  std::coroutine_handle<promise_type> frame;
};

}  // namespace detail

/// Starts a task from outside any coroutine and keeps its outcome. Owned by the caller until `done`.
template <class T>
class task_driver {
 public:
  task_driver(task<T> work, const environment& env) : work_{std::move(work)}, env_{env} {}
  task_driver(const task_driver&) = delete;
  task_driver& operator=(const task_driver&) = delete;
  ~task_driver() {
    if (started_ && !done()) work_.abandon();
  }

  void start() {
    started_ = true;
    const auto root = drive(*this);
    root.frame.promise().environment_used = &env_;
    root.frame.resume();
  }
  [[nodiscard]] bool done() const noexcept { return outcome_.index() != 0; }
  /// Precondition: done.
  T take() {
    if (outcome_.index() == 2) std::rethrow_exception(std::get<2>(std::move(outcome_)));
    if constexpr (!std::is_void_v<T>) return std::get<1>(std::move(outcome_));
  }

 private:
  static detail::root_coroutine drive(task_driver& self) {
    try {
      if constexpr (std::is_void_v<T>) {
        co_await std::move(self.work_);
        self.outcome_.template emplace<1>();
      } else {
        self.outcome_.template emplace<1>(co_await std::move(self.work_));
      }
    } catch (...) {
      self.outcome_.template emplace<2>(std::current_exception());
    }
  }
  using stored = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
  task<T> work_;
  const environment& env_;
  bool started_ = false;
  std::variant<std::monostate, stored, std::exception_ptr> outcome_;
};

}  // namespace chorale
