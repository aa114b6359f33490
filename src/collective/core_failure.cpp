// What fails the whole epoch, who has left, and what only time tells.
#include <chorale/collective/core.hpp>
#include <chorale/collective/gpu_side.hpp>
#include <chorale/transport/asymmetric_fence.hpp>

#include <algorithm>
#include <utility>

namespace chorale {
namespace {

/// How often waiting operations are looked at for what only time tells.
constexpr duration patience_step = std::chrono::milliseconds{250};
/// A broken link is a symptom: for so long the guard may name the cause.
constexpr duration link_grace = std::chrono::milliseconds{100};

}  // namespace

// Failure of the epoch.

error core::revoked_error(const group& among) const {
  if (cause_ == errc::revoked) return cause_;
  return error{errc::revoked, as_seen_by(among, cause_).summary(), cause_.culprit()};
}

void core::revoke_all(error why) noexcept {
  if (cause_) return;
  cause_ = std::move(why);
  if (gpu_abort* gpu = gpu_.load(std::memory_order_acquire)) gpu->abort(cause_.code(), cause_.culprit());
  std::vector<lane_state*> busy;
  for (auto& [key, lane] : lanes_)
    if (lane->first) busy.push_back(lane.get());
  for (lane_state* lane : busy) {
    ++lane->handles;
    while (lane->first) finish(*lane->first, cause_);
    close_handle(*lane);
  }
  end_windows(cause_);
}

void core::link_violated(rank_t from, const char* how) noexcept {
  if (cause_) return;
  if (guarded_)
    static_cast<void>(guarded_->revoke(revoke_scope::all, 0, errc::protocol_error, from, last_ticket()));
  revoke_all(error{errc::protocol_error, how, from});
}

void core::link_broken(rank_t to, error why) noexcept {
  if (cause_) return;
  const time_point until = loop_.now() + link_grace;
  lost_links_[static_cast<std::size_t>(to)] = {error{why.code(), why.detail(), to}, until};
  links_expire_ = std::min(links_expire_, until);
  loop_.disarm(patience_);
  loop_.arm(patience_, links_expire_);
  departures_pending_.store(true, std::memory_order_relaxed);  // it may have left in good order
}

void core::act_on_lost_links() noexcept {
  links_expire_ = never;
  for (rank_t r = 0; r < size_ && !cause_; ++r) {
    const auto& [why, until] = lost_links_[static_cast<std::size_t>(r)];
    if (!why || departed(r)) continue;
    if (until > loop_.now()) {  // it broke later than another
      links_expire_ = std::min(links_expire_, until);
      continue;
    }
    if (guarded_) static_cast<void>(guarded_->revoke(revoke_scope::all, 0, why.code(), r, last_ticket()));
    revoke_all(why);
  }
}

void core::revoke_gpu(errc cause) noexcept {
  if (gpu_abort* gpu = gpu_.load(std::memory_order_acquire)) gpu->abort(cause, rank_);
  // By the guards: the others may be waiting for their streams and poll nothing.
  if (guarded_) static_cast<void>(guarded_->revoke(revoke_scope::lane, gpu_lane, cause, rank_, 0));
}

void core::on_cause(const revoke& notice) noexcept {
  gpu_abort* const gpu = gpu_.load(std::memory_order_acquire);
  if (gpu && (notice.scope == revoke_scope::all || notice.lane == gpu_lane))
    gpu->abort(notice.cause, notice.culprit);
  if (notice.scope != revoke_scope::all) return;  // lanes are revoked in band, with both signatures
  std::uint32_t none = 0;
  if (!cause_phase_.compare_exchange_strong(none, 1, std::memory_order_relaxed)) return;
  notice_ = notice;
  cause_phase_.store(2, std::memory_order_release);
  loop_.wake();
}

void core::act_on_cause() noexcept {
  if (cause_phase_.load(std::memory_order_acquire) != 2) return;
  cause_phase_.store(3, std::memory_order_relaxed);
  revoke_all(to_error(notice_));
}

void core::on_left(rank_t who, std::uint64_t last_ticket) noexcept {
  departure& d = departures_[static_cast<std::size_t>(who)];
  d.last_ticket.store(last_ticket, std::memory_order_relaxed);
  d.known.store(true, std::memory_order_release);
  departures_pending_.store(true, std::memory_order_release);
  loop_.wake();
}

/// True once the rank left and everything it sent has been taken in.
bool core::departed(rank_t who) const noexcept { return departures_[static_cast<std::size_t>(who)].acted; }

rank_t core::departed_peer(const in_flight& op) const noexcept {
  for (rank_t r = 0; r < size_; ++r)
    if (departed(r, op.among()) && op.needs(r)) return r;
  return no_rank;
}

void core::act_on_departures() noexcept {
  if (!departures_pending_.exchange(false, std::memory_order_acquire)) return;
  for (rank_t r = 0; r < size_; ++r) {
    departure& d = departures_[static_cast<std::size_t>(r)];
    if (r == rank_ || d.acted || !d.known.load(std::memory_order_acquire)) continue;
    pair& link = link_to(r);
    // What it sent before it left is in the ring already, or comes before the end of the stream.
    const bool stream = lines_[static_cast<std::size_t>(r)] == nullptr;
    while (link.progress(1024) != 0) {
    }
    if (stream && !link.broken()) continue;
    d.acted = true;
    ++departed_count_;
    std::vector<in_flight*> stuck;
    for (auto& [key, lane] : lanes_)
      for (in_flight* op = lane->first; op; op = op->next_)
        if (op->needs(r)) stuck.push_back(op);
    for (in_flight* op : stuck)
      if (!op->finished_) end_for_want_of(*op, r);
    windows_go_without(r, nullptr);
  }
}

call_state core::state_of(std::uint64_t, std::uint64_t ticket) const noexcept {
  // Called by a guard thread: lanes are the engine's, so only what one word tells can be told.
  return ticket > last_ticket() ? call_state::not_called : call_state::running;
}

// Time.

void core::patience::fired(operation& op) noexcept { static_cast<patience&>(op).self.look_at_the_clock(); }

void core::look_at_the_clock() noexcept {
  if (links_expire_ <= loop_.now()) act_on_lost_links();
  if (running_ != 0) {
    ask_around();
    report_slow_operations();
  }
  if (window_operations_ != 0) report_slow_windows();
  const time_point next = waiting() != 0 ? loop_.now() + patience_step : never;
  if (const time_point first = std::min(links_expire_, next); first != never && !patience_.armed())
    loop_.arm(patience_, first);
}

/// A rank that called something else may send nothing here that shows it: two ranks that both take themselves
/// for the receiver would wait for each other for ever. So an operation that waits long tells everybody what
/// it is, once.
void core::ask_around() noexcept {
  struct question {
    std::uint64_t lane;
    std::uint64_t ticket;
    signature call;
    std::shared_ptr<const count_table> counts;
    const group* among;
  };
  std::vector<question> questions;  // sending may end operations: none is held meanwhile
  for (auto& [key, lane] : lanes_)
    for (in_flight* op = lane->first; op; op = op->next_) {
      if (op->asked_around_ || op->since_ == time_point{} || (op->ticket_ & message_ticket) != 0) continue;
      op->asked_around_ = true;
      questions.push_back({key, op->ticket_, op->signature_, op->what_.counts, lane->among});
    }
  for (const question& q : questions)
    for_members(*q.among, [&](pair& link) {
      if (departed(link.peer(), *q.among)) return;
      link.send_signature(
          q.lane, q.ticket,
          signature_between(q.call, q.counts.get(), q.among->rank(), q.among->member(link.peer())));
    });
}

void core::report_slow_operations() noexcept {
  std::vector<rank_t> waits_for;
  const time_point now = loop_.now();
  for (auto& [key, lane] : lanes_) {
    for (in_flight* op = lane->first; op; op = op->next_) {
      if (op->is_reported_) continue;
      if (op->since_ == time_point{}) {  // seen for the first time: it has waited for at most one step
        op->since_ = now;
        continue;
      }
      if (!guarded_) continue;
      waits_for.clear();
      for (rank_t r = 0; r < size_; ++r)
        if (r != rank_ && op->may_wait_for(r)) waits_for.push_back(r);
      op->reported_ = guarded_->pending(key, op->ticket_, waits_for, op->since_);
      op->is_reported_ = true;
    }
  }
}

// The poller.

std::size_t core::poll(std::size_t budget) noexcept {
  act_on_cause();
  std::size_t moved = 0;
  for_links([&](pair& link) { moved += link.progress(budget); });
  if (departures_pending_.load(std::memory_order_relaxed)) act_on_departures();
  if (!windows_.empty()) moved += poll_windows();
  return moved;
}

poller::arming core::arm() noexcept {
  if (cause_pending() || departures_pending_.load(std::memory_order_acquire)) return arming::busy;
  if (waiting() != 0 && !patience_.armed()) loop_.arm(patience_, loop_.now() + patience_step);
  bool fence = false;
  for_links([&](pair& link) { fence = link.announce_sleep() || fence; });
  if (fence && !heavy_fence()) {
    for_links([](pair& link) { link.fence_refused(); });
    return arming::busy;
  }
  bool quiet = true;
  for_links([&](pair& link) { quiet = quiet && link.arm(); });
  // After the wires: it is by their lines that who signals sees this engine asleep.
  return quiet && !windows_have_news() ? arming::armed : arming::busy;
}

void core::disarm() noexcept {
  for_links([](pair& link) { link.disarm(); });
}

}  // namespace chorale
