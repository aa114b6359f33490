#include <chorale/collective/core.hpp>
#include <chorale/collective/loopback.hpp>
#include <chorale/collective/message_execution.hpp>
#include <chorale/collective/plan_execution.hpp>
#include <chorale/collective/tiny_exchange.hpp>
#include <chorale/transport/shm_wire.hpp>

#include <cassert>
#include <utility>

namespace chorale {

core::core(core_setup setup)
    : loop_{*setup.loop},
      rank_{setup.rank},
      size_{setup.size},
      epoch_{setup.epoch},
      max_lanes_{setup.max_lanes},
      everybody_{setup.rank, setup.size, setup.selection, setup.hosts},
      sends_(static_cast<std::size_t>(setup.size)),
      lines_{std::move(setup.lines)},
      departures_(static_cast<std::size_t>(setup.size)),
      lost_links_(static_cast<std::size_t>(setup.size)) {
  pairs_.resize(static_cast<std::size_t>(size_));
  links_.resize(pairs_.size());
  all_lines_ = setup.selection.all_lines;
  for (rank_t r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const auto index = static_cast<std::size_t>(r);
    pairs_[index] =
        std::make_unique<pair>(r, std::move(setup.wires[index]), static_cast<arrival_judge&>(*this));
    links_[index] = pairs_[index].get();
  }
  default_lane_ = &lane_of(default_lane);
  ++default_lane_->handles;
  loop_.add(*this);
}

core::~core() {
  assert(running_ == 0 && "a communicator is destroyed with operations in flight");
  if (!closed_) {
    loop_.disarm(patience_);
    loop_.remove(*this);
  }
  guarded_.reset();
}

void core::guard_with(std::unique_ptr<membership> guarded) noexcept { guarded_ = std::move(guarded); }

void core::leave() noexcept {
  if (running_ != 0)
    revoke_all(error{errc::cancelled, "the communicator was destroyed during the operation"});
  // What has been sent is handed over to the wires by now, except what waits for room: push once more.
  for (auto& link : pairs_)
    if (link) link->progress(0);
  if (guarded_) static_cast<void>(guarded_->leave(last_ticket()));
}

void core::close(error why) noexcept {
  if (closed_) return;
  act_on_cause();
  if (!cause_) {
    // The others may be waiting for this rank, which will not take part any more.
    for (rank_t r = 0; r < size_ && !why; ++r)
      if (departed(r)) why = error{errc::peer_left, {}, r};
    if (!why) why = error{errc::revoked, "reset() was called"};
    if (guarded_)
      static_cast<void>(guarded_->revoke(revoke_scope::all, 0, why.code(), why.culprit(), last_ticket()));
    revoke_all(std::move(why));
  }
  closed_ = true;
  loop_.disarm(patience_);
  loop_.remove(*this);
  links_.assign(links_.size(), nullptr);
  for (auto& link : pairs_) link.reset();
  own_link_.reset();
}

bool core::unused() const noexcept {
  for (const auto& [key, lane] : lanes_)
    if (lane->handles != (lane.get() == default_lane_ ? 1U : 0U)) return false;
  return free_plan_executions_.size() == plan_executions_.size() &&
         free_message_executions_.size() == message_executions_.size() &&
         free_tiny_exchanges_.size() == tiny_exchanges_.size();
}

// The life of an operation.

in_flight* core::start(lane_state& lane, std::uint64_t ticket, call asked) {
  error why_not;
  if (cause_pending()) act_on_cause();
  if (cause_) {
    why_not = revoked_error(*lane.among);
  } else if (lane.ended()) {
    why_not = ticket == lane.cause_ticket
                  ? lane.cause
                  : error{errc::revoked, "the lane ended: " + as_seen_by(*lane.among, lane.cause).summary(),
                          lane.cause.culprit()};
  } else if (lane.running == 0 && running_lanes_ >= max_lanes_) {
    why_not =
        error{errc::too_many_lanes, std::to_string(running_lanes_) + " lanes have operations in flight"};
  }
  error unusable;
  in_flight& op = why_not ? static_cast<in_flight&>(new_message_execution())
                          : new_execution(*lane.among, asked, unusable);
  op.core_ = this;
  op.lane_ = &lane;
  op.ticket_ = ticket;
  op.what_ = std::move(asked);
  const call& what = op.what_;
  op.signature_ = signature_of(what);
  op.met_ = no_rank;
  op.came_ = {};
  if (op.outcome_) op.outcome_ = {};
  op.observer_ = nullptr;
  op.finished_ = op.adopted_ = op.is_reported_ = op.asked_around_ = false;
  op.since_ = {};
  if (what.kind == collective_kind::message) begin_message(op);
  if (why_not) {
    op.finished_ = true;
    op.outcome_ = as_seen_by(*lane.among, std::move(why_not.with_ticket(plain_number(ticket))));
    give_back_send(*lane.among, what);
    close_handle(lane);
    return &op;
  }
  op.previous_ = lane.last;
  op.next_ = nullptr;
  (lane.last ? lane.last->next_ : lane.first) = &op;
  lane.last = &op;
  ++running_;
  if (lane.running++ == 0) ++running_lanes_;
  // Before signatures are compared: ranks that lost one operation more or less make different calls by now.
  if (what.kind != collective_kind::message && ticket >= lane.short_from) {
    finish(op, error{errc::peer_left, {}, lane.missing});
    return &op;
  }
  if (!judge_early(op)) return &op;
  if (unusable) {
    refuse(op, std::move(unusable));
    return &op;
  }
  if (what.expires != never) loop_.arm(op.expiry_, what.expires);
  // Who has left is looked at after it has begun: a message may be here already.
  op.begin();
  if (!op.finished_ && (departed_count_ != 0 || lane.among->anybody_left()))
    if (const rank_t gone = departed_peer(op); gone != no_rank) end_for_want_of(op, gone);
  return &op;
}

void core::refuse(in_flight& op, error why) noexcept {
  // Ranks that made the same call refuse it too, and their signatures agree with ours.
  const group& among = op.among();
  for_members(among, [&](pair& link) {
    link.send_signature(op.lane_->key, op.ticket_, op.signed_for(among.member(link.peer())));
  });
  finish(op, std::move(why));
}

void core::finish(in_flight& op, error outcome) noexcept {
  if (std::exchange(op.finished_, true)) return;
  lane_state& lane = *op.lane_;
  if (outcome) {
    op.take_back();
    outcome.with_ticket(plain_number(op.ticket_));
  } else if (op.what_.told) {
    *op.what_.told = op.came_;
  }
  give_back_send(op.among(), op.what_);
  if (!(op.ticket_ & message_ticket))
    for (auto& link : pairs_)
      if (link) link->forget_ticket(lane.key, op.ticket_);
  op.outcome_ = outcome ? as_seen_by(op.among(), std::move(outcome)) : error{};
  loop_.disarm(op.expiry_);
  if (op.is_reported_) guarded_->done(op.reported_);
  (op.previous_ ? op.previous_->next_ : lane.first) = op.next_;
  (op.next_ ? op.next_->previous_ : lane.last) = op.previous_;
  if (!(op.ticket_ & message_ticket))
    lane.history[op.ticket_ % lane.history.size()] = {op.ticket_, op.signature_, op.what_.counts};
  --running_;
  if (--lane.running == 0) --running_lanes_;
  close_handle(lane);
  if (op.observer_)
    op.observer_->ended(*op.observer_);
  else if (op.adopted_)
    op.recycle();
}

signature in_flight::signed_for(rank_t peer) const noexcept {
  return signature_between(signature_, what_.counts.get(), among().rank(), peer);
}

group& in_flight::among() const noexcept { return *lane_->among; }

pair& in_flight::link_to(rank_t member) const noexcept { return core_->link_to(among().in_epoch(member)); }

void in_flight::release() noexcept {
  observer_ = nullptr;
  if (finished_)
    recycle();
  else
    adopted_ = true;
}

void in_flight::expiry::fired(operation& op) noexcept {
  in_flight& self = static_cast<expiry&>(op).self;
  self.core_->end_early(self, errc::timed_out);
}

}  // namespace chorale
