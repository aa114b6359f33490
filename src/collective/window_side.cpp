#include <chorale/collective/window_side.hpp>
#include <chorale/kernels/host_accumulate.hpp>
#include <chorale/transport/shm_wire.hpp>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace chorale {
namespace {

error as_revoked(const error& cause) {
  if (cause == errc::revoked || cause == errc::cancelled) return cause;
  return error{errc::revoked, "the window ended: " + cause.summary(), cause.culprit()};
}

}  // namespace

window_side::window_side(core& inside, lane_state& lane, std::vector<window_part> parts,
                         std::vector<segment> memory)
    : core_{&inside},
      lane_{&lane},
      among_{*lane.among},
      rank_{among_.rank()},
      parts_{std::move(parts)},
      memory_{std::move(memory)},
      left_(parts_.size()) {
  for (rank_t member = 0; member < among_.size(); ++member)
    links_.push_back(part(member).reachable() ? nullptr : std::make_unique<link>(*this, member));
  core_->add_window(*this);
  if (inside.cause())
    end(core::as_seen_by(among_, inside.cause()));
  else if (lane.ended())
    lane_ended(core::as_seen_by(among_, lane.cause));
  for (rank_t member = 0; member < among_.size(); ++member)
    if (member != rank_ && inside.has_left(among_.in_epoch(member), among_)) member_left(member);
}

window_side::~window_side() { assert(!core_ && "a window is neither closed nor dropped"); }

pair& window_side::link_to(rank_t member) const noexcept { return core_->link_to(among_.in_epoch(member)); }

template <class Visit>
void window_side::for_links(Visit visit) {
  for (auto& l : links_)
    if (l) visit(*l);
}

// An operation from its beginning to its end.

error window_side::unusable() const {
  if (!core_ || closing_)
    return error{errc::invalid_state, "the window was closed; create another on every rank"};
  if (forked()) return error{errc::forked};
  if (!core_->loop().in_loop())
    return error{errc::invalid_state,
                 "a window was used outside its engine's thread; post() the work to that engine"};
  if (core_->cause_pending()) core_->look_at_the_guard();
  return ended_ ? as_revoked(ended_) : error{};
}

window_side::begun window_side::begin(const window_request& what) {
  begun outcome;
  outcome.refused = unusable();
  host_reduction combine = nullptr;
  if (!outcome.refused) outcome.refused = check(what, combine);
  if (outcome.refused) return outcome;
  if (what.action == window_action::wait) {
    outcome.value = part(rank_).counters[what.slot].value.load(std::memory_order_acquire);
    if (outcome.value >= what.amount) return outcome;
    if (who_left_ != no_rank) {
      outcome.refused = error{errc::peer_left, describe(what), who_left_};
      return outcome;
    }
    outcome.op = &new_operation(what);
    waits_.append(*outcome.op);
    return outcome;
  }
  if (left_[static_cast<std::size_t>(what.peer)]) {
    outcome.refused = error{errc::peer_left, describe(what), what.peer};
    return outcome;
  }
  if (part(what.peer).reachable()) {
    do_now(what, combine);
    return outcome;
  }
  link& l = *links_[static_cast<std::size_t>(what.peer)];
  outcome.op = &new_operation(what);
  l.queued.append(*outcome.op);
  send_next(l);
  return outcome;
}

void window_side::do_now(const window_request& what, host_reduction combine) noexcept {
  const window_part& target = part(what.peer);
  switch (what.action) {
    case window_action::put:
      if (what.bytes != 0) std::memmove(target.memory + what.offset, what.from, what.bytes);
      return;
    case window_action::get:
      if (what.bytes != 0) std::memmove(what.into, target.memory + what.offset, what.bytes);
      return;
    case window_action::accumulate: {
      const std::size_t element =
          std::max<std::size_t>(size_of(what.type), 1);  // checked, as it has a kernel
      return accumulate_atomically(target.memory + what.offset, what.from, what.bytes / element, element,
                                   combine);
    }
    default:
      break;
  }
  // Releases what this rank put there before; a waiter acquires it with the counter.
  target.counters[what.slot].value.fetch_add(what.amount, std::memory_order_release);
  if (what.peer != rank_) core_->line_to(among_.in_epoch(what.peer)).ring_if_asleep();
}

window_operation& window_side::new_operation(const window_request& what) {
  if (free_.empty()) {
    free_.reserve(operations_.size() + 1);
    free_.push_back(operations_.emplace_back(std::make_unique<window_operation>(*this)).get());
  }
  window_operation& op = *free_.back();
  free_.pop_back();
  op.what_ = what;
  op.outcome_ = {};
  op.observer_ = nullptr;
  op.finished_ = op.adopted_ = op.is_reported_ = false;
  op.since_ = {};
  op.number_ = op.progress_ = op.value_ = 0;
  ++in_flight_;
  core_->window_waits(true);
  if (what.expires != never) core_->loop().arm(op.expiry_, what.expires);
  return op;
}

void window_side::finish(window_operation& op, error outcome) noexcept {
  if (std::exchange(op.finished_, true)) return;
  window_operations::remove(op);
  op.outcome_ = std::move(outcome);
  core_->loop().disarm(op.expiry_);
  core_->window_waits(false);
  if (op.is_reported_ && core_->guarded()) core_->guarded()->done(op.reported_);
  if (op.observer_)
    op.observer_->ended(*op.observer_);
  else if (op.adopted_)
    recycle(op);
  if (--in_flight_ != 0 || !on_idle_) return;
  completion_observer& tell = *std::exchange(on_idle_, nullptr);
  tell.ended(tell);
}

void window_side::stop(window_operation& op, errc why) noexcept {
  if (op.finished_) return;
  std::string what = describe(op.what_);
  if (op.what_.action == window_action::wait) {
    const auto value = part(rank_).counters[op.what_.slot].value.load(std::memory_order_relaxed);
    return finish(op, error{why, what + ", which is at " + std::to_string(value)});
  }
  link& l = *links_[static_cast<std::size_t>(op.what_.peer)];
  if (l.queued.first() == &op) {
    const bool goes_out = link_to(l.member).abandon(l.out);
    if (goes_out && op.what_.action == window_action::get) ++l.gets;  // it will be answered all the same
  }
  if (op.number_ != 0) what += "; a part may have arrived";
  finish(op, error{why, std::move(what), op.what_.peer});
  send_next(l);  // what waited for its place, or for its bytes
}

void window_operation::release() noexcept {
  observer_ = nullptr;
  if (finished_)
    home_.recycle(*this);
  else
    adopted_ = true;
}

void window_operation::stop(errc why) noexcept { home_.stop(*this, why); }

// Waits.

std::size_t window_side::poll() noexcept {
  std::size_t ended = 0;
  for (window_operation* op = waits_.first(); op;) {
    window_operation* const next = window_operations::after(*op);
    op->value_ = part(rank_).counters[op->what_.slot].value.load(std::memory_order_acquire);
    if (op->value_ >= op->what_.amount) {
      finish(*op, {});
      ++ended;
    }
    op = next;
  }
  return ended;
}

bool window_side::has_news() const noexcept {
  for (const window_operation* op = waits_.first(); op; op = window_operations::after(*op))
    if (part(rank_).counters[op->what_.slot].value.load(std::memory_order_acquire) >= op->what_.amount)
      return true;
  return false;
}

void window_side::report(time_point now) noexcept {
  report(waits_, no_rank, now);
  for_links([&](link& l) {
    report(l.queued, l.member, now);
    report(l.sent, l.member, now);
    report(l.getting, l.member, now);
  });
}

/// Whoever waits for a signal may get it from any rank.
void window_side::report(window_operations& list, rank_t waits_for, time_point now) noexcept {
  std::vector<rank_t> ranks;
  for (window_operation* op = list.first(); op; op = window_operations::after(*op)) {
    if (op->is_reported_) continue;
    if (op->since_ == time_point{}) {
      op->since_ = now;
      continue;
    }
    if (!core_->guarded()) continue;
    if (ranks.empty())
      for (rank_t member = 0; member < among_.size(); ++member)
        if (member != rank_ && (waits_for == no_rank || member == waits_for))
          ranks.push_back(among_.in_epoch(member));
    op->reported_ = core_->guarded()->pending(lane_->key, op->number_, ranks, op->since_);
    op->is_reported_ = true;
  }
}

// How it ends.

void window_side::finish_all(window_operations& list, const error& why) noexcept {
  while (list.first()) {
    window_operation& op = *list.first();
    error outcome = why;
    if (outcome.culprit() == no_rank && op.what_.peer != no_rank)
      outcome = error{why.code(), why.detail(), op.what_.peer};
    finish(op, std::move(outcome));
  }
}

void window_side::finish_link(link& l, const error& why) noexcept {
  pair& to = link_to(l.member);
  to.abandon(l.out);
  to.abandon(l.reply);
  to.abandon(l.got);
  l.ask_count = 0;
  finish_all(l.queued, why);
  finish_all(l.sent, why);
  finish_all(l.getting, why);
}

void window_side::end(error why) noexcept {
  if (ended_ || !core_) return;
  ended_ = std::move(why);
  finish_all(waits_, ended_);
  for_links([&](link& l) { finish_link(l, ended_); });
}

void window_side::lane_ended(const error& why) noexcept {
  if (why != errc::dropped) return end(why);
  const std::string who =
      why.culprit() == no_rank ? std::string{"a rank"} : "rank " + std::to_string(why.culprit());
  end(error{errc::dropped, who + " destroyed its part of a window that was not closed", why.culprit()});
}

void window_side::member_left(rank_t member) noexcept {
  if (ended_ || !core_) return;
  left_[static_cast<std::size_t>(member)] = true;
  if (who_left_ == no_rank) who_left_ = member;
  const error why{errc::peer_left, "it left before it closed the window", member};
  finish_all(waits_, why);
  if (auto& l = links_[static_cast<std::size_t>(member)]) finish_link(*l, why);
}

void window_side::begin_closing() noexcept {
  closing_ = true;
  finish_all(waits_, error{errc::cancelled, "the window is being closed on this rank"});
}

void window_side::close() noexcept {
  if (!core_) return;
  end(error{errc::cancelled, "the window was closed"});
  core_->remove_window(*this);
  core_->close_handle(*lane_);
  core_ = nullptr;
}

void window_side::drop(errc why) noexcept {
  if (!core_) return;
  core_->remove_window(*this);
  end(error{errc::cancelled, "the window was destroyed on this rank; close() it on every rank first"});
  core_->revoke_lane(*lane_, 0, why);
  core_->close_handle(*lane_);
  core_ = nullptr;
}

}  // namespace chorale
