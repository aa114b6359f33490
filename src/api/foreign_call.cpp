#include <chorale/api/foreign_call.hpp>

namespace chorale {

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
  loop_.post(what);
}

void foreign_call::place() noexcept {
  add_reference();
  if (loop_.in_loop())
    placing_.run();  // among the calls that this thread makes directly
  else
    loop_.post(placing_);
}

void foreign_call::begin(listener& who) noexcept {
  listener_ = &who;
  hand_over(beginning_);
}

void foreign_call::request_stop() noexcept {
  if (!stop_posted_.exchange(true, std::memory_order_relaxed)) hand_over(stopping_);
}

void foreign_call::drop() noexcept { hand_over(dropping_); }

void foreign_call::wait_until_quiet() noexcept {
  if (loop_.in_loop()) {
    listener_ = nullptr;
    stop_now();
    return;
  }
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return quiet_; });
}

// The engine's thread.

void foreign_call::take_place() { ticket_.emplace(make()); }

void foreign_call::stop_now() { stop_.request_stop(errc::cancelled); }

void foreign_call::give_up() { ticket_.reset(); }

task<void> foreign_call::carry(foreign_call& self) {
  as_result_of<ticket> awaited = as_result(std::move(*self.ticket_));
  const result<void> outcome = co_await std::move(awaited);
  self.finish_with(outcome.has_value() ? error{} : outcome.error());
}

void foreign_call::start() {
  if (stop_.stop_requested()) {
    // Not started at all: whoever asked may have taken the buffers away.
    ticket_.reset();
    finish_with(error{errc::cancelled});
    return;
  }
  driver_.emplace(carry(*this), environment_);
  driver_->start();
}

void foreign_call::finish_with(error outcome) noexcept {
  outcome_ = std::move(outcome);
  add_reference();
  loop_.schedule(ending_);  // when the coroutine is through
}

void foreign_call::tell_end() {
  if (driver_ && !driver_->done()) {  // its last resumption may stand behind us in the queue
    add_reference();
    loop_.schedule(ending_);
    return;
  }
  driver_.reset();
  ticket_.reset();
  if (listener* who = std::exchange(listener_, nullptr)) who->ended(outcome_);
  const std::lock_guard lock{mutex_};
  quiet_ = true;
  changed_.notify_all();
}

}  // namespace chorale
