// A call made on a thread that is not its engine's: what adapters for other frameworks are built on.
//
// The call takes its place in the lane's order when it is made: at once on the engine's own thread, else when
// the engine comes to it, in the order in which calls were made by one thread (or one strand). So ranks whose
// calls of one lane come from one strand agree; calls from several threads have no order among themselves
// unless the caller gives them one. What happens later (begin, stop, drop) never changes the place.
//
// Counted: the adapter and every step on its way to the engine hold one reference. Functions marked "any
// thread" only post.
#pragma once

#include <chorale/api/ticket.hpp>
#include <chorale/async/engine.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

namespace chorale {

class foreign_call {
 public:
  foreign_call(const foreign_call&) = delete;
  foreign_call& operator=(const foreign_call&) = delete;

  /// Who is told, on the engine's thread, that the operation ended and its buffers are free.
  class listener {
   public:
    virtual void ended(const error& outcome) noexcept = 0;

   protected:
    ~listener() = default;
  };

  /// Any thread, once: starts the operation. `who` stays until `ended`, or until `wait_until_quiet` returned.
  void begin(listener& who) noexcept;
  /// Any thread: asks the operation to end with errc::cancelled. Its lane ends with it. Later requests change
  /// nothing.
  void request_stop() noexcept;
  /// Any thread, instead of `begin`: the lane is revoked as for any dropped ticket.
  void drop() noexcept;
  /// Any thread, after `begin`: returns when the operation has ended and the listener will not be used any
  /// more. Takes a turn or two of the engine and waits for no peer, once a stop was requested. On the
  /// engine's own thread it can not wait: there it ends the operation inside the call and forgets the
  /// listener.
  void wait_until_quiet() noexcept;

  void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void remove_reference() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 protected:
  explicit foreign_call(engine& loop) noexcept;
  virtual ~foreign_call() = default;
  /// Takes the place. After construction, by whoever made the call.
  void place() noexcept;
  /// Makes the call, on the engine's thread.
  virtual ticket make() = 0;

 private:
  struct step : operation {
    step(function what, foreign_call& on) noexcept : operation{what}, self{on} {}
    foreign_call& self;
  };
  void hand_over(step& what) noexcept;
  template <void (foreign_call::*What)()>
  static void take(operation& op) noexcept;
  void take_place();
  void start();
  void stop_now();
  void give_up();
  void tell_end();
  void finish_with(error outcome) noexcept;
  static task<void> carry(foreign_call& self);

  engine& loop_;
  std::atomic<int> references_{1};
  std::atomic<bool> stop_posted_{false};
  step placing_;
  step beginning_;
  step stopping_;
  step dropping_;
  step ending_;

  // The engine's thread.
  std::optional<ticket> ticket_;
  listener* listener_ = nullptr;
  stop_source stop_;
  environment environment_;
  std::optional<task_driver<void>> driver_;
  error outcome_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool quiet_ = false;
};

/// One reference.
class foreign_call_handle {
 public:
  foreign_call_handle() = default;
  /// Adopts the reference a call is made with.
  explicit foreign_call_handle(foreign_call* call) noexcept : call_{call} {}
  foreign_call_handle(const foreign_call_handle& other) noexcept : call_{other.call_} {
    if (call_) call_->add_reference();
  }
  foreign_call_handle(foreign_call_handle&& other) noexcept : call_{std::exchange(other.call_, nullptr)} {}
  foreign_call_handle& operator=(foreign_call_handle other) noexcept {
    std::swap(call_, other.call_);
    return *this;
  }
  ~foreign_call_handle() {
    if (call_) call_->remove_reference();
  }
  [[nodiscard]] foreign_call* operator->() const noexcept { return call_; }
  explicit operator bool() const noexcept { return call_ != nullptr; }

 private:
  foreign_call* call_ = nullptr;
};

namespace detail {

template <class Maker>
class foreign_call_of final : public foreign_call {
 public:
  foreign_call_of(engine& loop, Maker maker) noexcept : foreign_call{loop}, maker_{std::move(maker)} {}
  using foreign_call::place;

 private:
  ticket make() override { return maker_(); }
  Maker maker_;
};

}  // namespace detail

/// Makes a call: `maker()` returns its ticket and is called once, on the engine's thread. What it refers to
/// (the communicator, the buffers) stays until the call has ended or was dropped.
template <class Maker>
foreign_call_handle make_foreign_call(engine& loop, Maker maker) {
  auto* made = new detail::foreign_call_of<Maker>{loop, std::move(maker)};
  foreign_call_handle owner{made};
  made->place();
  return owner;
}

}  // namespace chorale
