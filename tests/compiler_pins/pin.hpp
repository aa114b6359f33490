// The least that a pin needs: a lazy task, a driver that runs it to its end, and counted objects.
#pragma once

#include <coroutine>
#include <cstdio>
#include <exception>
#include <utility>

namespace pin {

template <class T>
class task {
 public:
  struct promise_type {
    T value{};
    std::exception_ptr failure;
    std::coroutine_handle<> continuation = std::noop_coroutine();

    task get_return_object() { return task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct final_awaiter {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) noexcept {
        return ended.promise().continuation;
      }
      void await_resume() noexcept {}
    };
    final_awaiter final_suspend() noexcept { return {}; }
    void return_value(T result) { value = std::move(result); }
    void unhandled_exception() { failure = std::current_exception(); }
  };

  task(task&& other) noexcept : frame_{std::exchange(other.frame_, {})} {}
  task& operator=(task&&) = delete;
  ~task() {
    if (frame_) frame_.destroy();
  }

  struct awaiter {
    std::coroutine_handle<promise_type> frame;
    bool await_ready() noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiting) noexcept {
      frame.promise().continuation = waiting;
      return frame;
    }
    T await_resume() {
      if (frame.promise().failure) std::rethrow_exception(frame.promise().failure);
      return std::move(frame.promise().value);
    }
  };
  awaiter operator co_await() && noexcept { return awaiter{frame_}; }

  T run() {
    frame_.resume();
    return awaiter{frame_}.await_resume();
  }

 private:
  explicit task(std::coroutine_handle<promise_type> frame) : frame_{frame} {}
  std::coroutine_handle<promise_type> frame_;
};

/// Counts its living copies, so that a lost or doubled destructor shows.
struct counted {
  inline static int living = 0;
  int value = 0;
  explicit counted(int v) : value{v} { ++living; }
  counted(const counted& other) : value{other.value} { ++living; }
  counted(counted&& other) noexcept : value{std::exchange(other.value, -1)} { ++living; }
  counted& operator=(const counted&) = default;
  counted& operator=(counted&&) = default;
  ~counted() { --living; }
};

inline int failures = 0;
inline void check(bool holds, const char* what) {
  if (holds) return;
  std::printf("broken: %s\n", what);
  ++failures;
}

}  // namespace pin
