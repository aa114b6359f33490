#include <chorale/async/engine.hpp>

#include <sched.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

namespace chorale {
namespace {

constexpr std::size_t poll_budget = 64;
constexpr int spins_per_kernel_look = 64;
/// Longer than it takes to wake a sleeping peer in a virtual machine: with less, two ranks that have once
/// slept wake each other for ever.
constexpr duration default_spin = std::chrono::microseconds{100};

constinit thread_local engine* current_engine = nullptr;

duration spin_from_environment(duration otherwise) {
  const char* text = std::getenv("CHORALE_SPIN_US");
  if (!text) return otherwise;
  long microseconds = 0;
  const char* end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, microseconds);
  if (parsed.ec != std::errc{} || parsed.ptr != end || microseconds < 0)
    throw failure{error{errc::invalid_argument,
                        std::string{"CHORALE_SPIN_US="} + text +
                            " is not a number of microseconds; write e.g. 50, or 0 to sleep at once"}};
  return std::chrono::microseconds{microseconds};
}

std::unique_ptr<backend> require_backend(backend_kind kind) {
  auto made = make_backend(kind);
  return std::move(made).value();
}

void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

duration derived_spin_budget(int spinning_threads) noexcept {
  return spinning_threads > usable_cpus() ? duration::zero() : default_spin;
}

engine::engine(engine_options options)
    : engine{
          require_backend(options.backend),
          spin_from_environment(options.spin >= duration::zero() ? options.spin : derived_spin_budget(2))} {
  spin_is_derived_ = options.spin < duration::zero() && !std::getenv("CHORALE_SPIN_US");
}

void engine::share_cpus(cpu_share share) noexcept {
  if (!spin_is_derived_) return;
  const duration now_fits = share == cpu_share::one_each ? default_spin : duration::zero();
  spin_ = knows_its_share_ ? std::min(spin_, now_fits) : now_fits;
  knows_its_share_ = true;
}

engine::engine(std::unique_ptr<backend> io, duration spin)
    : io_{std::move(io)}, root_{this, nullptr, never}, spin_{spin} {}

engine::~engine() {
  assert(!in_loop() && "an engine is destroyed inside its own loop");
  // Requests whose owners cancelled them and went away are still with the kernel for a moment.
  const time_point patience = steady_now() + std::chrono::seconds{5};
  while (io_->outstanding() != 0 && steady_now() < patience) {
    io_->wait(now() + std::chrono::milliseconds{10}, ready_);
    run_ready();
  }
  // Or have been given back and not heard of it yet.
  while (!ready_.empty() && !io_->stuck()) run_ready();
  // After a simulated deadlock the waiting coroutines are given up, with all that they hold.
  assert((io_->stuck() || (!pollers_ && timers_.empty() && io_->outstanding() == 0)) &&
         "an engine is destroyed with operations in flight");
}

engine* engine::current() noexcept { return current_engine; }

void engine::enter() {
  if (in_loop())
    throw failure{
        error{errc::invalid_state,
              "engine::run was called inside a coroutine of the same engine; co_await the work instead"}};
  const auto caller = std::this_thread::get_id();
  if (owner_ == std::thread::id{}) owner_ = caller;
  if (owner_ != caller)
    throw failure{error{
        errc::invalid_state,
        "an engine belongs to the thread that first ran it; post() to it, or make one engine per thread"}};
  outer_ = std::exchange(current_engine, this);
}

void engine::leave() noexcept { current_engine = outer_; }

void engine::run_forever() {
  // Work that keeps posting more of its kind must not hold up the end.
  int turns_left = 64;
  run_until([&] {
    const bool idle = inbox_.empty() && ready_.empty();
    return stopping_.load(std::memory_order_acquire) && (idle || turns_left-- == 0);
  });
  stopping_.store(false, std::memory_order_relaxed);
}

void engine::stop() noexcept {
  stopping_.store(true, std::memory_order_release);
  wake();
}

void engine::post(operation& op) noexcept {
  if (!inbox_.push(op) || in_loop()) return;
  // Pairs with the fence in `wait_for_the_kernel`: either we see the engine asleep, or it sees our operation.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_relaxed)) wake();
}

void engine::add(poller& p) noexcept {
  poller** last = &pollers_;
  while (*last) last = &(*last)->next_;
  *last = &p;
  p.next_ = nullptr;
}

void engine::remove(poller& p) noexcept {
  poller** link = &pollers_;
  while (*link && *link != &p) link = &(*link)->next_;
  if (*link) *link = p.next_;
}

bool engine::run_ready() noexcept {
  // Only what is queued now: a coroutine that keeps rescheduling itself must not starve the kernel's
  // completions.
  std::size_t count = ready_.size();
  const bool any = count != 0;
  counters_.resumed += count;
  for (; count != 0; --count) ready_.pop().run();
  return any;
}

std::size_t engine::poll_all() noexcept {
  std::size_t handled = 0;
  for (poller* p = pollers_; p;) {
    poller* next = p->next_;
    handled += p->poll(poll_budget);
    p = next;
  }
  return handled;
}

std::size_t engine::poll_once() noexcept { return poll_all(); }

std::size_t engine::expire_timers() noexcept { return timers_.empty() ? 0 : timers_.expire(now()); }

void engine::turn() {
  ++counters_.turns;
  went_on_ = 0;
  if (!inbox_.empty()) inbox_.take(ready_);
  bool moved = run_ready();
  moved = poll_all() != 0 || moved;
  // While coroutines chain, kernel completions are looked for every few turns only: each look may be a system
  // call.
  if (ready_.empty() || counters_.turns % spins_per_kernel_look == 0) {
    moved = io_->reap(ready_) != 0 || moved;
    moved = expire_timers() != 0 || moved;
  }
  if (moved || !ready_.empty() || !inbox_.empty() || stopping_.load(std::memory_order_acquire)) return;
  if (!idle_spin()) sleep();
}

bool engine::idle_spin() {
  if (spin_ == duration::zero()) return false;
  bool wanted = false;
  for (poller* p = pollers_; p && !wanted; p = p->next_) wanted = p->outstanding() != 0;
  if (!wanted) return false;
  const time_point until = now() + spin_;
  do {
    for (int i = 0; i < spins_per_kernel_look; ++i) {
      if (poll_all() != 0 || !inbox_.empty() || !ready_.empty()) return true;
      pause_cpu();
    }
    if (io_->outstanding() != 0 && io_->reap(ready_) != 0) return true;
    if (expire_timers() != 0) return true;
    // Whom we wait for may be queued behind us on this very CPU, on a host that others use too.
    sched_yield();
  } while (now() < until);
  return false;
}

void engine::sleep() {
  bool busy = false;
  poller* p = pollers_;
  for (; p && !busy; p = p->next_) busy = p->arm() == poller::arming::busy;
  if (!busy) wait_for_the_kernel();
  for (poller* armed = pollers_; armed != p; armed = armed->next_) armed->disarm();
}

void engine::wait_for_the_kernel() {
  asleep_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (inbox_.empty() && ready_.empty()) {
    ++counters_.sleeps;
    io_->wait(timers_.earliest(), ready_);
  }
  asleep_.store(false, std::memory_order_relaxed);
  if (io_->stuck() && inbox_.empty())
    throw failure{error{errc::deadlock,
                        "every coroutine of this simulated engine waits, for no deadline and for nothing "
                        "that is under way; look for an await that nobody ends"}};
  expire_timers();
}

namespace detail {
bool schedule_on(const environment* env, operation& op) noexcept {
  if (!env || !env->loop) return false;
  env->loop->schedule(op);
  return true;
}
}  // namespace detail

}  // namespace chorale
