// The proactor: one thread's loop over ready coroutines, pollers, kernel completions and deadlines.
//
// An engine belongs to the thread that first runs it; other threads only `post` and `wake`. One turn: empty
// the inbox, run what was ready at the start of the turn, ask the pollers in order, exchange submissions and
// completions with the backend, fire deadlines; when nothing moved, spin within a budget while a poller has
// something outstanding, then arm every poller, look once more, and sleep until the next deadline or the
// doorbell. `run` inside a coroutine of the same engine is refused: it would wait for itself.
#pragma once

#include <chorale/async/backend.hpp>
#include <chorale/async/cpus.hpp>
#include <chorale/async/environment.hpp>
#include <chorale/async/inbox.hpp>
#include <chorale/async/poller.hpp>
#include <chorale/async/task.hpp>
#include <chorale/async/timer.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <thread>

namespace chorale {

struct engine_options {
  backend_kind backend = backend_kind::automatic;
  /// How long to poll before sleeping while a poller has operations outstanding; negative: derived from the
  /// CPUs that host-mates share (see `share_cpus`). CHORALE_SPIN_US overrides it.
  duration spin = duration{-1};
};

class engine {
 public:
  /// Throws `failure` when no backend can be had.
  explicit engine(engine_options options = {});
  /// With a backend of the caller's: simulation, tests.
  explicit engine(std::unique_ptr<backend> io, duration spin = duration::zero());
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  /// Asserts that every poller, timer and kernel operation is gone.
  ~engine();

  /// Runs until `work` has ended and returns its value or throws its exception. Throws errc::invalid_state
  /// when called inside this engine or on another thread than before, and errc::deadlock when a simulated
  /// engine has nothing left that could ever run.
  template <class T>
  T run(task<T> work);

  /// Runs turns until `done()` is true.
  template <class Predicate>
  void run_until(Predicate done) {
    enter();
    const leave_guard on_exit{*this};
    while (!done()) turn();
  }

  /// Runs until `stop` is called from any thread; what was posted before, and what that hands on, still runs.
  /// For an engine with a thread of its own.
  void run_forever();
  void stop() noexcept;

  /// Queues an operation from any thread.
  void post(operation& op) noexcept;
  /// Queues an operation from this engine's thread.
  void schedule(operation& op) noexcept { ready_.push(op); }
  /// Any thread: ends the engine's sleep.
  void wake() noexcept { io_->wake(); }

  void add(poller& p) noexcept;
  void remove(poller& p) noexcept;

  void arm(timer& t, time_point when) { timers_.arm(t, when); }
  void disarm(timer& t) noexcept { timers_.disarm(t); }

  [[nodiscard]] backend& io() noexcept { return *io_; }
  [[nodiscard]] time_point now() const noexcept { return io_->now(); }
  /// The root environment: this engine, never stopped.
  [[nodiscard]] const environment& root() const noexcept { return root_; }
  [[nodiscard]] bool in_loop() const noexcept { return current() == this; }
  /// The engine whose loop the calling thread is in, or null.
  [[nodiscard]] static engine* current() noexcept;

  [[nodiscard]] duration spin_budget() const noexcept { return spin_; }
  void set_spin_budget(duration spin) noexcept { spin_ = spin; }
  /// What has come out about the CPUs of this host (see `one_cpu_each`): an engine that chose its budget
  /// itself spins if every communicator that told it had enough, however few this thread may use. A budget
  /// that the options or CHORALE_SPIN_US gave stays.
  void share_cpus(cpu_share share) noexcept;

  struct counters {
    std::uint64_t turns = 0;
    std::uint64_t sleeps = 0;
    std::uint64_t resumed = 0;  ///< operations run from the ready queue
  };
  [[nodiscard]] const counters& statistics() const noexcept { return counters_; }

  /// For an awaiter that need not suspend: false when so many in a row have not that the loop, with its other
  /// coroutines, timers and requests, has to have a turn.
  [[nodiscard]] bool may_go_on() noexcept { return ++went_on_ < most_in_a_row; }
  /// Polls once without running the ready queue: for an awaiter that would rather look again than suspend.
  std::size_t poll_once() noexcept;

 private:
  struct leave_guard {
    engine& self;
    ~leave_guard() { self.leave(); }
  };
  static constexpr std::uint32_t most_in_a_row = 64;
  void enter();
  void leave() noexcept;
  void turn();
  bool run_ready() noexcept;
  std::size_t poll_all() noexcept;
  std::size_t expire_timers() noexcept;
  bool idle_spin();
  void sleep();
  void wait_for_the_kernel();

  std::unique_ptr<backend> io_;
  environment root_;
  operation_queue ready_;
  inbox inbox_;
  timer_heap timers_;
  poller* pollers_ = nullptr;
  engine* outer_ = nullptr;  // the engine this thread was in before, while running
  std::thread::id owner_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> asleep_{false};  // a post has to ring
  duration spin_;
  bool spin_is_derived_ = false;
  bool knows_its_share_ = false;
  std::uint32_t went_on_ = 0;  // awaits of this turn that did not suspend
  counters counters_;
};

/// The spin budget an engine chooses by itself, before it knows whom it shares CPUs with: zero when fewer
/// than `spinning_threads` are usable.
[[nodiscard]] duration derived_spin_budget(int spinning_threads) noexcept;

template <class T>
T engine::run(task<T> work) {
  task_driver<T> driver{std::move(work), root_};
  enter();
  {
    const leave_guard on_exit{*this};
    driver.start();
    while (!driver.done()) turn();
  }
  return driver.take();
}

}  // namespace chorale
