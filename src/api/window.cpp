#include <chorale/api/window.hpp>
#include <chorale/async/with_environment.hpp>
#include <chorale/collective/epoch.hpp>
#include <chorale/collective/window_side.hpp>

#include <new>

namespace chorale {
namespace {

/// Until the operations of a rank that closes a window have ended.
class drained : public suspension, private completion_observer {
 public:
  explicit drained(window_side& on) noexcept : suspension{on_stop}, completion_observer{on_idle}, on_{on} {}
  [[nodiscard]] bool await_ready() const noexcept { return on_.idle(); }
  template <environment_promise Promise>
  bool await_suspend(std::coroutine_handle<Promise> waiting) noexcept {
    if (!suspend(waiting, waiting.promise().env())) return false;
    on_.when_idle(this);
    return true;
  }
  /// Why it ended early, or errc::ok.
  [[nodiscard]] errc await_resume() const noexcept { return on_.idle() ? errc::ok : stop_reason(); }

 private:
  static void on_idle(completion_observer& base) noexcept { static_cast<drained&>(base).finish(); }
  static void on_stop(suspension& base) noexcept {
    auto& self = static_cast<drained&>(base);
    self.on_.when_idle(nullptr);
    self.finish();
  }
  window_side& on_;
};

task<errc> drain(window_side& side) {
  drained ending{side};
  const errc early = co_await ending;
  co_return early;
}

}  // namespace

window::window(std::shared_ptr<epoch> current, std::shared_ptr<window_side> side, lane own) noexcept
    : current_{std::move(current)}, side_{std::move(side)}, lane_{std::move(own)} {}

window::window(window&& other) noexcept = default;

window& window::operator=(window&& other) noexcept {
  std::swap(current_, other.current_);
  std::swap(side_, other.side_);
  std::swap(lane_, other.lane_);
  return *this;
}

window::~window() {
  if (!side_) return;
  if (forked()) {
    // All of it is the parent's: see ~communicator.
    static_cast<void>(new (std::nothrow) std::shared_ptr<window_side>{std::move(side_)});
    static_cast<void>(new (std::nothrow) std::shared_ptr<epoch>{std::move(current_)});
    return;
  }
  side_->drop();
  side_.reset();
}

rank_t window::rank() const noexcept { return side_ ? side_->rank() : no_rank; }
rank_t window::size() const noexcept { return side_ ? side_->size() : 0; }

std::uint64_t window::bytes_of(rank_t member) const noexcept {
  return side_ && member >= 0 && member < side_->size() ? side_->part(member).bytes : 0;
}

bool window::direct(rank_t member) const noexcept {
  return side_ && member >= 0 && member < side_->size() && side_->part(member).reachable();
}

std::span<std::byte> window::bytes() const noexcept {
  if (!side_) return {};
  const window_part& own = side_->part(side_->rank());
  return {own.memory, static_cast<std::size_t>(own.bytes)};
}

std::uint64_t window::counter(std::uint32_t slot) const noexcept {
  return side_->part(side_->rank()).counters[slot].value.load(std::memory_order_acquire);
}

time_point window::expiry(deadline limit) const noexcept {
  return limit.from(side_ && side_->inside() ? side_->inside()->loop().now() : time_point{});
}

window_call<void> window::signal(rank_t to, std::uint32_t slot, std::uint64_t add, deadline limit) {
  window_request what;
  what.action = window_action::signal;
  what.peer = to;
  what.slot = slot;
  what.amount = add;
  return made<void>(what, limit);
}

window_call<std::uint64_t> window::wait(std::uint32_t slot, std::uint64_t at_least, deadline limit) {
  window_request what;
  what.action = window_action::wait;
  what.slot = slot;
  what.amount = at_least;
  return made<std::uint64_t>(what, limit);
}

task<void> window::close(deadline limit) {
  const time_point until = expiry(limit);
  if (forked()) return finish_close(window{nullptr, nullptr, lane{error{}}}, until);  // the parent's stays
  if (side_) side_->begin_closing();
  return finish_close(std::move(*this), until);
}

// Whatever happens below, also when this task is destroyed, the window does not stay half closed: `leaving`
// drops it.
task<void> window::finish_close(window leaving, time_point until) {
  if (forked()) throw failure{error{errc::forked}};
  const std::shared_ptr<window_side> side = leaving.side_;
  if (!side) throw failure{error{errc::invalid_state, "close: the window was closed, or moved from"}};
  task<errc> draining = with_deadline(until, drain(*side));
  const errc early = co_await std::move(draining);
  if (early != errc::ok) {
    side->drop(early);
    throw failure{error{early, "the window was not closed: operations on it had not ended"}};
  }
  as_result_of<ticket> meeting = as_result(leaving.lane_.barrier(deadline{until}));
  auto met = co_await std::move(meeting);
  if (!met) throw failure{std::move(met).error()};
  side->close();
}

}  // namespace chorale
