// An operation on a window that has not begun, and one that is under way: what the methods of `window`
// return.
//
//   co_await w.put(2, offset, row);                        // begins and awaits; throws `failure`
//   auto r = co_await as_result(w.wait(0, step));          // result<std::uint64_t> instead
//   auto op = w.put(2, offset, row).start();               // begins now
//   co_await std::move(op);                                // awaits later
//
// Nobody waits for an operation that never begins: unlike the tickets of collectives, a call may be dropped.
// Dropping one under way is fine too: the window finishes it, and the buffer stays in use until then. A
// deadline counts from the call; when it passes, or the coroutine is stopped, this operation ends and the
// window goes on. Thread: the one of the communicator's engine.
#pragma once

#include <chorale/async/suspension.hpp>
#include <chorale/collective/completion.hpp>
#include <chorale/collective/window_request.hpp>

#include <coroutine>
#include <memory>
#include <type_traits>
#include <utility>

namespace chorale {

class window_operation;
class window_side;

namespace detail {

/// The handle on an operation, begun or not.
class window_handle {
 public:
  window_handle(std::shared_ptr<window_side> side, const window_request& what) noexcept
      : side_{std::move(side)}, what_{what} {}
  window_handle(window_handle&& other) noexcept
      : side_{std::move(other.side_)},
        what_{other.what_},
        op_{std::exchange(other.op_, nullptr)},
        outcome_{std::move(other.outcome_)},
        value_{other.value_},
        begun_{std::exchange(other.begun_, true)} {}
  window_handle& operator=(window_handle&& other) noexcept;
  ~window_handle() {
    if (op_) release();
  }

  void begin();
  [[nodiscard]] bool ended() const noexcept;
  [[nodiscard]] error take(std::uint64_t& value);
  [[nodiscard]] engine& loop() const noexcept;
  [[nodiscard]] window_operation* operation() const noexcept { return op_; }
  void end_with(error why) noexcept;

 private:
  void release() noexcept;
  std::shared_ptr<window_side> side_;
  window_request what_;
  window_operation* op_ = nullptr;
  error outcome_;
  std::uint64_t value_ = 0;
  bool begun_ = false;
};

class window_awaiter_base : public suspension, private completion_observer {
 public:
  explicit window_awaiter_base(window_handle on) noexcept
      : suspension{on_stop}, completion_observer{on_end}, on_{std::move(on)} {}

  [[nodiscard]] bool await_ready() {
    on_.begin();
    return on_.ended();
  }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> waiting) noexcept {
    return wait(waiting, environment_of(waiting));
  }

 protected:
  [[nodiscard]] error take(std::uint64_t& value) { return on_.take(value); }

 private:
  bool wait(std::coroutine_handle<> waiting, const environment* env) noexcept;
  static void on_stop(suspension& base) noexcept;
  static void on_end(completion_observer& base) noexcept;
  window_handle on_;
};

template <class T>
class window_awaiter : public window_awaiter_base {
 public:
  using window_awaiter_base::window_awaiter_base;
  T await_resume() {
    std::uint64_t value = 0;
    if (error why = take(value)) throw failure{std::move(why)};
    if constexpr (!std::is_void_v<T>) return value;
  }
};

template <class T>
class window_result_awaiter : public window_awaiter_base {
 public:
  using window_awaiter_base::window_awaiter_base;
  [[nodiscard]] result<T> await_resume() {
    std::uint64_t value = 0;
    if (error why = take(value)) return why;
    if constexpr (std::is_void_v<T>)
      return {};
    else
      return value;
  }
};

}  // namespace detail

/// An operation that has begun.
template <class T>
class [[nodiscard]] window_started {
 public:
  explicit window_started(detail::window_handle on) noexcept : on_{std::move(on)} {}
  /// Whether it has ended, well or badly: an await then returns at once.
  [[nodiscard]] bool ready() const noexcept { return on_.ended(); }
  [[nodiscard]] detail::window_awaiter<T> operator co_await() && noexcept {
    return detail::window_awaiter<T>{std::move(on_)};
  }

 private:
  template <class Operation, class U>
  friend class window_as_result;
  detail::window_handle on_;
};

/// An operation that has not. T: void, and for `wait` the counter's value.
template <class T>
class [[nodiscard]] window_call {
 public:
  explicit window_call(detail::window_handle on) noexcept : on_{std::move(on)} {}
  window_started<T> start() && {
    on_.begin();
    return window_started<T>{std::move(on_)};
  }
  [[nodiscard]] detail::window_awaiter<T> operator co_await() && noexcept {
    return detail::window_awaiter<T>{std::move(on_)};
  }

 private:
  template <class Operation, class U>
  friend class window_as_result;
  detail::window_handle on_;
};

template <class Operation, class T>
class [[nodiscard]] window_as_result {
 public:
  explicit window_as_result(Operation operation) noexcept : operation_{std::move(operation)} {}
  [[nodiscard]] detail::window_result_awaiter<T> operator co_await() && noexcept {
    return detail::window_result_awaiter<T>{std::move(operation_.on_)};
  }

 private:
  Operation operation_;
};

template <class T>
[[nodiscard]] window_as_result<window_call<T>, T> as_result(window_call<T> operation) noexcept {
  return window_as_result<window_call<T>, T>{std::move(operation)};
}
template <class T>
[[nodiscard]] window_as_result<window_started<T>, T> as_result(window_started<T> operation) noexcept {
  return window_as_result<window_started<T>, T>{std::move(operation)};
}

}  // namespace chorale
