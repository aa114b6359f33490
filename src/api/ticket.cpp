#include <chorale/api/ticket.hpp>
#include <chorale/collective/core.hpp>

#include <algorithm>

namespace chorale::detail {

in_flight* start_call(call_place& place) {
  core& inside = *place.inside;
  if (forked()) {
    place.inside = nullptr;
    place.refused = error{errc::forked};
    return nullptr;
  }
  if (!inside.loop().in_loop()) {
    drop_call(place);
    place.refused =
        error{errc::invalid_state,
              "a communicator was used outside its engine's thread; post() the work to that engine"};
    return nullptr;
  }
  place.inside = nullptr;
  return inside.start(*place.lane, place.number, std::move(place.what));
}

void drop_call(call_place& place) noexcept {
  if (!place.inside) return;
  if (!forked()) place.inside->drop(*place.lane, place.number, place.what);
  place.inside = nullptr;
}

void release(in_flight& op) noexcept { op.release(); }

bool finished(const in_flight& op) noexcept { return op.finished(); }

namespace {

/// Moves data for a moment; whether that was enough. Ranks that call together then need not suspend.
bool look_for_the_end(in_flight& op) noexcept {
  core& inside = op.owner();
  // A fork child shares its parent's memory and would take away what came for the parent.
  if (forked() || inside.loop().spin_budget() == duration::zero()) return false;
  // No longer than a few pieces of a long message take: other coroutines are waiting for their turn.
  std::size_t frames = 8;
  for (int looks = 48; looks > 0 && frames > 0; --looks) {
    frames -= std::min(frames, inside.poll(1));  // what is for later calls stays where it is for now
    if (op.finished()) return true;
  }
  return false;
}

}  // namespace

bool may_resume_at_once(in_flight& op) noexcept {
  return (op.finished() || look_for_the_end(op)) && op.owner().loop().may_go_on();
}

error take_outcome(in_flight& op, received* came) {
  error outcome = op.outcome();
  if (came) *came = op.came();
  op.release();
  return outcome;
}

error operation_awaiter::take(received* came) {
  if (!op_) return std::move(place_.refused);
  return take_outcome(*std::exchange(op_, nullptr), came);
}

bool operation_awaiter::wait(std::coroutine_handle<> waiting, const environment* env) noexcept {
  core& inside = op_->owner();
  if (forked()) {  // the parent's operation: nothing here will ever end it
    op_ = nullptr;
    place_.refused = error{errc::forked};
    return false;
  }
  if (op_->finished()) {  // others have their turn first
    if (suspend(waiting, env, &inside.loop())) {
      finish();
      return true;
    }
    return false;
  }
  if (!suspend(waiting, env, &inside.loop())) {
    const errc reason = stop_reason();
    inside.end_early(*op_, reason);
    return false;  // ended inside
  }
  op_->observe(this);
  return true;
}

void operation_awaiter::on_stop(suspension& base) noexcept {
  auto& self = static_cast<operation_awaiter&>(base);
  self.op_->owner().end_early(*self.op_, self.stop_reason());
}

void operation_awaiter::on_end(completion_observer& base) noexcept {
  static_cast<operation_awaiter&>(base).finish();
}

}  // namespace chorale::detail
