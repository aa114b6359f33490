// The leaf of an await chain: one suspended coroutine that is resumed once, through its engine's ready queue,
// by whichever comes first of a completion and a stop request.
//
// Derived awaiters call `suspend` when they go to sleep, `finish` when their event happens, and implement
// `on_stop`, which either ends the wait at once (`finish`) or asks the kernel, NIC or GPU to give the
// operation back, which then finishes it. Resumption through the queue means that `finish` may be called from
// anywhere in the loop without running user code. One thread.
#pragma once

#include <chorale/async/engine.hpp>

#include <cassert>
#include <coroutine>

namespace chorale {

class suspension {
 public:
  using stopper = void (*)(suspension&) noexcept;

  explicit suspension(stopper on_stop) noexcept : on_stop_{on_stop}, resumption_{*this}, stop_watch_{*this} {}
  suspension(const suspension&) = delete;
  suspension& operator=(const suspension&) = delete;

  [[nodiscard]] bool pending() const noexcept { return static_cast<bool>(waiting_) && !finished_; }

 protected:
  ~suspension() { assert(!pending() && "an awaiter is destroyed while its operation is in flight"); }

  /// `env` may be null for coroutines of other libraries; `fallback` is then the engine to resume on.
  /// Returns false, with nothing registered, if a stop was requested already.
  bool suspend(std::coroutine_handle<> waiting, const environment* env, engine* fallback = nullptr) noexcept {
    loop_ = env && env->loop ? env->loop : fallback;
    stop_ = env ? env->stop : nullptr;
    assert(loop_ && "this operation needs a chorale task, or an object that knows its engine");
    if (!stop_watch_.add_to(stop_)) return false;
    waiting_ = waiting;
    finished_ = false;
    return true;
  }

  void finish() noexcept {
    if (!pending()) return;
    finished_ = true;
    stop_watch_.remove();
    loop_->schedule(resumption_);
  }

  [[nodiscard]] engine& loop() const noexcept { return *loop_; }
  /// Why a stop was requested; errc::ok if none was.
  [[nodiscard]] errc stop_reason() const noexcept { return stop_ ? stop_->reason() : errc::ok; }

 private:
  struct resumption : operation {
    explicit resumption(suspension& s) noexcept : operation{run_now}, self{s} {}
    static void run_now(operation& op) noexcept {
      std::exchange(static_cast<resumption&>(op).self.waiting_, {}).resume();
    }
    suspension& self;
  };
  struct stop_watch : stop_callback {
    explicit stop_watch(suspension& s) noexcept : stop_callback{called}, self{s} {}
    static void called(stop_callback& callback) noexcept {
      suspension& s = static_cast<stop_watch&>(callback).self;
      s.on_stop_(s);
    }
    suspension& self;
  };

  stopper on_stop_;
  resumption resumption_;
  stop_watch stop_watch_;
  engine* loop_ = nullptr;
  stop_source* stop_ = nullptr;
  std::coroutine_handle<> waiting_;
  bool finished_ = false;
};

}  // namespace chorale
