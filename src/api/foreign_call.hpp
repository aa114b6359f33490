// A call made on a thread that is not its engine's: what adapters for other frameworks are built on.
//
// The call takes its place in the lane's order when it is made: at once on the engine's own thread, else when
// the engine comes to it, in the order in which calls were made by one thread (or one strand). So ranks whose
// calls of one lane come from one strand agree; calls from several threads have no order among themselves
// unless the caller gives them one. What happens later (begin, stop, drop) never changes the place.
//
// Counted: the adapter and every step on its way to the engine hold one reference. When the last goes and the
// call was never begun, the lane is revoked as for any dropped ticket. Functions marked "any thread" only
// post. In a fork child, whose engines have no thread, a call ends with errc::forked where it is begun.
#pragma once

#include <chorale/api/ticket.hpp>
#include <chorale/async/engine.hpp>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

namespace chorale {

namespace detail {

/// False in a fork child: nothing there runs what is posted.
bool post_to_engine(engine& loop, operation& what) noexcept;

}  // namespace detail

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

  /// Any thread: true once, for whoever is to begin it.
  [[nodiscard]] bool first_to_begin() noexcept { return !claimed_.exchange(true, std::memory_order_relaxed); }
  /// Any thread, once: starts the operation. `who` stays until `ended`, or until `wait_until_quiet` returned.
  void begin(listener& who) noexcept;
  /// Any thread: asks the operation to end with errc::cancelled. Its lane ends with it. Later requests change
  /// nothing.
  void request_stop() noexcept;
  /// Any thread, after `begin`: returns when the operation has ended and the listener will not be used any
  /// more. Takes a turn or two of the engine and waits for no peer, once a stop was requested. On the
  /// engine's own thread it can not wait: there it ends the operation inside the call and forgets the
  /// listener.
  void wait_until_quiet() noexcept;

  void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void remove_reference() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) let_go();
  }

  /// By whoever removes the last reference.
  virtual ~foreign_call() = default;

 protected:
  explicit foreign_call(engine& loop) noexcept;
  /// Takes the place. After construction, by whoever made the call.
  void place() noexcept;
  /// Makes the call, on the engine's thread: what it returns starts when it is awaited, and drops its tickets
  /// when it is not.
  virtual task<error> make() = 0;

 private:
  struct step : operation {
    step(function what, foreign_call& on) noexcept : operation{what}, self{on} {}
    foreign_call& self;
  };
  void hand_over(step& what) noexcept;
  void let_go() noexcept;
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
  std::atomic<bool> claimed_{false};
  std::atomic<bool> stop_posted_{false};
  step placing_;
  step beginning_;
  step stopping_;
  step dropping_;
  step ending_;

  // The engine's thread.
  std::optional<task<error>> work_;
  listener* listener_ = nullptr;
  stop_source stop_;
  environment environment_;
  std::optional<task_driver<void>> driver_;
  error outcome_;
  bool over_ = false;  // ended, or given up

  std::mutex mutex_;
  std::condition_variable changed_;
  bool quiet_ = false;
};

/// One reference.
template <class Call = foreign_call>
class foreign_handle {
 public:
  foreign_handle() = default;
  /// Adopts the reference a call is made with.
  explicit foreign_handle(Call* call) noexcept : call_{call} {}
  foreign_handle(const foreign_handle& other) noexcept : call_{other.call_} {
    if (call_) call_->add_reference();
  }
  foreign_handle(foreign_handle&& other) noexcept : call_{std::exchange(other.call_, nullptr)} {}
  foreign_handle& operator=(foreign_handle other) noexcept {
    std::swap(call_, other.call_);
    return *this;
  }
  ~foreign_handle() {
    if (call_) call_->remove_reference();
  }
  [[nodiscard]] Call* operator->() const noexcept { return call_; }
  explicit operator bool() const noexcept { return call_ != nullptr; }

 private:
  Call* call_ = nullptr;
};

using foreign_call_handle = foreign_handle<>;

namespace detail {

/// The operation's outcome as a value. `work` throws `failure` or std::bad_alloc and nothing else.
[[nodiscard]] task<error> outcome_of(ticket placed);
[[nodiscard]] task<error> outcome_of(task<void> work);

template <class Maker>
class foreign_call_of final : public foreign_call {
 public:
  foreign_call_of(engine& loop, Maker maker) noexcept : foreign_call{loop}, maker_{std::move(maker)} {}
  using foreign_call::place;

 private:
  task<error> make() override {
    Maker once = *std::exchange(maker_, std::nullopt);  // what it holds ends here, on the engine's thread
    return outcome_of(once());
  }
  std::optional<Maker> maker_;
};

/// A task on its way to the engine, and what it returned or threw on the way back.
template <class T>
class foreign_task : public foreign_call {
 public:
  using value_type = T;
  using foreign_call::foreign_call;
  using foreign_call::place;

  // After the end, whose `outcome` says errc::cancelled where the task was never started.
  [[nodiscard]] std::exception_ptr failed(const error& outcome) const {
    return outcome ? std::make_exception_ptr(failure{outcome}) : failed_;
  }
  [[nodiscard]] auto& value() noexcept { return value_; }

 protected:
  static task<error> keep(foreign_task& self, task<T> work) {
    error none;
    try {
      if constexpr (std::is_void_v<T>) {
        co_await std::move(work);
      } else {
        T value = co_await std::move(work);
        self.value_.emplace(std::move(value));
      }
    } catch (...) {
      self.failed_ = std::current_exception();
    }
    co_return none;
  }

 private:
  std::optional<std::conditional_t<std::is_void_v<T>, bool, T>> value_;
  std::exception_ptr failed_;
};

template <class T, class Maker>
class foreign_task_of final : public foreign_task<T> {
 public:
  foreign_task_of(engine& loop, Maker maker) noexcept : foreign_task<T>{loop}, maker_{std::move(maker)} {}

 private:
  task<error> make() override {
    Maker once = *std::exchange(maker_, std::nullopt);
    return this->keep(*this, once());
  }
  std::optional<Maker> maker_;
};

/// What a maker's task returns.
template <class Maker>
using made_by = typename std::invoke_result_t<Maker&>::value_type;

}  // namespace detail

/// Makes a call: `maker()` returns its ticket, or the task of a batch, and is called once, on the engine's
/// thread. What it refers to (the communicator, the buffers) stays until the call has ended or was given up.
template <class Maker>
foreign_call_handle make_foreign_call(engine& loop, Maker maker) {
  auto* made = new detail::foreign_call_of<Maker>{loop, std::move(maker)};
  foreign_call_handle owner{made};
  made->place();
  return owner;
}

/// The same for any task: `maker()` returns it, or throws `failure`.
template <class Maker, class T = detail::made_by<Maker>>
foreign_handle<detail::foreign_task<T>> make_foreign_task(engine& loop, Maker maker) {
  foreign_handle<detail::foreign_task<T>> owner{
      new detail::foreign_task_of<T, Maker>{loop, std::move(maker)}};
  owner->place();
  return owner;
}

}  // namespace chorale
