#include <chorale/api/foreign_call.hpp>
#include <chorale/transport/guard/guard.hpp>

#include <new>

namespace chorale {

bool detail::post_to_engine(engine& loop, operation& what) noexcept {
  if (forked()) return false;
  loop.post(what);
  return true;
}

template <void (foreign_call::*What)()>
void foreign_call::take(operation& op) noexcept {
  foreign_call& self = static_cast<step&>(op).self;
  (self.*What)();
  self.remove_reference();
}

foreign_call::foreign_call(engine& loop) noexcept
    : loop_{loop},
      placing_{take<&foreign_call::take_place>, *this},
      beginning_{take<&foreign_call::start>, *this},
      stopping_{take<&foreign_call::stop_now>, *this},
      dropping_{take<&foreign_call::give_up>, *this},
      ending_{take<&foreign_call::tell_end>, *this},
      environment_{&loop, &stop_, never} {}

void foreign_call::hand_over(step& what) noexcept {
  add_reference();
  static_cast<void>(detail::post_to_engine(loop_, what));  // else the reference stays: it is the parent's
}

void foreign_call::place() noexcept {
  if (forked()) return;
  add_reference();
  if (loop_.in_loop())
    placing_.run();  // among the calls that this thread makes directly
  else
    loop_.post(placing_);
}

void foreign_call::begin(listener& who) noexcept {
  if (forked()) {
    over_ = true;
    who.ended(error{errc::forked});
    const std::lock_guard lock{mutex_};
    quiet_ = true;
    return;
  }
  listener_ = &who;
  hand_over(beginning_);
}

void foreign_call::request_stop() noexcept {
  if (!stop_posted_.exchange(true, std::memory_order_relaxed)) hand_over(stopping_);
}

void foreign_call::let_go() noexcept {
  if (over_)
    delete this;
  else
    hand_over(dropping_);  // tickets go where they were taken
}

void foreign_call::wait_until_quiet() noexcept {
  if (forked()) return;
  if (loop_.in_loop()) {
    listener_ = nullptr;
    stop_now();
    return;
  }
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return quiet_; });
}

// The engine's thread.

void foreign_call::take_place() {
  try {
    work_.emplace(make());
  } catch (const failure& f) {
    outcome_ = f.why();
  } catch (const std::bad_alloc&) {
    outcome_ = error{errc::out_of_memory, "a call from another thread could not take its place"};
  }
}

void foreign_call::stop_now() { stop_.request_stop(errc::cancelled); }

void foreign_call::give_up() {
  work_.reset();
  over_ = true;
}

task<void> foreign_call::carry(foreign_call& self) {
  task<error> work = std::move(*self.work_);
  error outcome = co_await std::move(work);
  self.finish_with(std::move(outcome));
}

void foreign_call::start() {
  add_reference();  // until the end is told
  if (!work_) return finish_with(std::move(outcome_));
  if (stop_.stop_requested()) {
    // Not started at all: whoever asked may have taken the buffers away.
    work_.reset();
    return finish_with(error{errc::cancelled});
  }
  driver_.emplace(carry(*this), environment_);
  driver_->start();
}

void foreign_call::finish_with(error outcome) noexcept {
  outcome_ = std::move(outcome);
  loop_.schedule(ending_);  // when the coroutine is through
}

void foreign_call::tell_end() {
  if (driver_ && !driver_->done()) {  // its last resumption may stand behind us in the queue
    add_reference();
    loop_.schedule(ending_);
    return;
  }
  driver_.reset();
  work_.reset();
  over_ = true;
  if (listener* who = std::exchange(listener_, nullptr)) who->ended(outcome_);
  const std::lock_guard lock{mutex_};
  quiet_ = true;
  changed_.notify_all();
}

namespace detail {

task<error> outcome_of(ticket placed) {
  error outcome;
  try {
    as_result_of<ticket> awaited = as_result(std::move(placed));
    const result<void> ended = co_await std::move(awaited);
    if (!ended) outcome = ended.error();
  } catch (const std::bad_alloc&) {
    outcome = error{errc::out_of_memory, "an operation could not be started"};
  }
  co_return outcome;
}

task<error> outcome_of(task<void> work) {
  error outcome;
  try {
    co_await std::move(work);
  } catch (const failure& f) {
    outcome = f.why();
  } catch (const std::bad_alloc&) {
    outcome = error{errc::out_of_memory, "operations could not be started"};
  }
  co_return outcome;
}

}  // namespace detail

}  // namespace chorale
