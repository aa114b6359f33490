#include <chorale/api/window_call.hpp>
#include <chorale/collective/window_side.hpp>

namespace chorale::detail {

window_handle& window_handle::operator=(window_handle&& other) noexcept {
  std::swap(side_, other.side_);
  std::swap(what_, other.what_);
  std::swap(op_, other.op_);
  std::swap(outcome_, other.outcome_);
  std::swap(value_, other.value_);
  std::swap(begun_, other.begun_);
  return *this;
}

void window_handle::begin() {
  if (begun_) {
    // The handle of an operation that was begun and awaited, or moved from.
    if (!side_ && !outcome_)
      outcome_ = error{errc::invalid_state,
                       "an operation on a window was awaited twice, or after it was moved from"};
    return;
  }
  begun_ = true;
  if (!side_) {
    outcome_ = error{errc::invalid_state, "the window was closed, or moved from"};
    return;
  }
  window_side::begun now = side_->begin(what_);
  op_ = now.op;
  outcome_ = std::move(now.refused);
  value_ = now.value;
}

bool window_handle::ended() const noexcept { return !op_ || op_->finished(); }

void window_handle::release() noexcept {
  if (!forked()) op_->release();
  op_ = nullptr;
}

error window_handle::take(std::uint64_t& value) {
  error outcome = std::move(outcome_);
  value = value_;
  if (op_) {
    outcome = op_->outcome();
    value = op_->value();
    release();
  }
  side_.reset();
  return outcome;
}

void window_handle::end_with(error why) noexcept {
  op_ = nullptr;
  outcome_ = std::move(why);
}

engine& window_handle::loop() const noexcept { return side_->inside()->loop(); }

bool window_awaiter_base::wait(std::coroutine_handle<> waiting, const environment* env) noexcept {
  if (forked()) {  // the parent's operation: nothing here will ever end it
    on_.end_with(error{errc::forked});
    return false;
  }
  if (!suspend(waiting, env, &on_.loop())) {
    on_.operation()->stop(stop_reason());
    return false;
  }
  on_.operation()->observe(this);
  return true;
}

void window_awaiter_base::on_stop(suspension& base) noexcept {
  auto& self = static_cast<window_awaiter_base&>(base);
  self.on_.operation()->stop(self.stop_reason());
}

void window_awaiter_base::on_end(completion_observer& base) noexcept {
  static_cast<window_awaiter_base&>(base).finish();
}

}  // namespace chorale::detail
