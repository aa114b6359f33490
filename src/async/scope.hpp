// scope: children that never outlive the block that made them.
//
//   scope children{co_await this_environment()};
//   children.spawn(serve(connection));
//   co_await children.join();
//
// The first child that fails stops its siblings; `join` waits for all of them and then throws that failure. A
// scope is stopped when its parent is. Its destructor requires that it was joined or that nothing was
// spawned. One thread.
#pragma once

#include <chorale/async/engine.hpp>

#include <cassert>
#include <coroutine>
#include <exception>
#include <utility>

namespace chorale {

class scope {
 public:
  explicit scope(const environment& parent)
      : stop_{parent.stop}, env_{parent.loop, &stop_, parent.deadline}, joined_{wake_joiner} {}
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;
  ~scope() { assert(running_ == 0 && "a scope is destroyed before its children were joined"); }

  /// Starts `child` on the engine's next turn. May be called from children too.
  void spawn(task<void> child) {
    auto started = run_child(*this, std::move(child));
    ++running_;
    auto& promise = started.frame.promise();
    promise.environment_used = &env_;
    env_.loop->schedule(promise);
  }

  void request_stop(errc reason = errc::cancelled) noexcept { stop_.request_stop(reason); }
  [[nodiscard]] const environment& env() const noexcept { return env_; }
  [[nodiscard]] std::size_t running() const noexcept { return running_; }

  struct join_awaiter {
    scope& self;
    [[nodiscard]] bool await_ready() const noexcept { return self.running_ == 0; }
    void await_suspend(std::coroutine_handle<> waiting) const noexcept { self.joined_.waiting = waiting; }
    void await_resume() const {
      if (self.failed_) std::rethrow_exception(std::exchange(self.failed_, nullptr));
    }
  };
  /// Ends when the last child has, a stop request notwithstanding: children are told, not abandoned. Throws
  /// the first failure. The scope may be used again afterwards.
  [[nodiscard]] join_awaiter join() noexcept { return {*this}; }

 private:
  struct child_coroutine {
    struct promise_type : pooled_frame, operation {
      promise_type() noexcept : operation{start} {}
      const environment* environment_used = nullptr;
      [[nodiscard]] const environment* env() const noexcept { return environment_used; }
      child_coroutine get_return_object() noexcept {
        return {std::coroutine_handle<promise_type>::from_promise(*this)};
      }
      [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
      [[nodiscard]] std::suspend_never final_suspend() const noexcept { return {}; }
      void return_void() const noexcept {}
      [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
      static void start(operation& op) noexcept {
        std::coroutine_handle<promise_type>::from_promise(static_cast<promise_type&>(op)).resume();
      }
    };
    std::coroutine_handle<promise_type> frame;
  };
  struct joiner : operation {
    using operation::operation;
    std::coroutine_handle<> waiting;
  };

  static child_coroutine run_child(scope& self, task<void> child) {
    try {
      co_await std::move(child);
    } catch (...) {
      self.fail(std::current_exception());
    }
    self.child_ended();
  }
  void fail(std::exception_ptr why) noexcept {
    if (!failed_) failed_ = std::move(why);
    stop_.request_stop(errc::cancelled);
  }
  // The joiner is resumed through the ready queue: the ending child's frame is gone by then.
  void child_ended() noexcept {
    if (--running_ == 0 && joined_.waiting) env_.loop->schedule(joined_);
  }
  static void wake_joiner(operation& op) noexcept {
    std::exchange(static_cast<joiner&>(op).waiting, {}).resume();
  }

  stop_source stop_;
  environment env_;
  joiner joined_;
  std::size_t running_ = 0;
  std::exception_ptr failed_;
};

}  // namespace chorale
