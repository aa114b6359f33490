#include <chorale/collective/core.hpp>
#include <chorale/collective/message_execution.hpp>
#include <chorale/collective/plan_execution.hpp>
#include <chorale/collective/tiny_exchange.hpp>
#include <chorale/transport/shm_wire.hpp>

#include <cassert>
#include <utility>

namespace chorale {
namespace {

constexpr std::size_t remembered_keys = 65536;

}  // namespace

core::core(core_setup setup)
    : loop_{*setup.loop},
      rank_{setup.rank},
      size_{setup.size},
      epoch_{setup.epoch},
      max_lanes_{setup.max_lanes},
      everybody_{setup.rank, setup.size, setup.selection, setup.hosts},
      lines_{std::move(setup.lines)},
      departures_(static_cast<std::size_t>(setup.size)),
      lost_links_(static_cast<std::size_t>(setup.size)) {
  pairs_.resize(static_cast<std::size_t>(size_));
  all_lines_ = setup.selection.all_lines;
  for (rank_t r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const auto index = static_cast<std::size_t>(r);
    pairs_[index] =
        std::make_unique<pair>(r, std::move(setup.wires[index]), static_cast<arrival_judge&>(*this));
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
  for (auto& link : pairs_) link.reset();
}

bool core::unused() const noexcept {
  for (const auto& [key, lane] : lanes_)
    if (lane->handles != (lane.get() == default_lane_ ? 1U : 0U)) return false;
  return free_plan_executions_.size() == plan_executions_.size() &&
         free_message_executions_.size() == message_executions_.size() &&
         free_tiny_exchanges_.size() == tiny_exchanges_.size();
}

// Lanes and tickets.

lane_state& core::lane_of(std::uint64_t key) {
  auto& slot = lanes_[key];
  if (!slot) {
    slot = std::make_unique<lane_state>();
    slot->key = key;
    slot->among = &everybody_;
  }
  return *slot;
}

result<lane_state*> core::open_lane(group& among, std::uint64_t key) {
  if (among.is_whole() && key == default_lane) {
    ++default_lane_->handles;
    return default_lane_;
  }
  const std::uint64_t name = among.lane_key(key);
  if (ended_keys_.contains(name))
    return error{errc::invalid_state,
                 "lane " + std::to_string(key) +
                     " was used and dropped in this epoch; keep its handle, or take another key"};
  lane_state& lane = lane_of(name);
  if (lane.among != &among) {
    lane.among = &among;
    ++among.lanes;
    if (lane.ended_by.from != no_rank) lane.cause = told_cause(lane);
  }
  ++lane.handles;
  for (const rank_t gone : std::exchange(lane.left_before, {})) member_left(among, gone);
  return &lane;
}

void core::close_handle(lane_state& lane) noexcept {
  if (--lane.handles != 0 || lane.running != 0) return;
  const std::uint64_t key = lane.key;
  for (auto& link : pairs_)
    if (link) link->forget_lane(key);
  if (ended_order_.size() < remembered_keys) {
    ended_order_.push_back(key);
  } else {
    ended_keys_.erase(std::exchange(ended_order_[ended_next_], key));
    ended_next_ = (ended_next_ + 1) % remembered_keys;
  }
  ended_keys_.insert(key);
  group* const child = lane.among->is_whole() ? nullptr : lane.among;
  lanes_.erase(key);
  if (child) {
    --child->lanes;
    drop_if_unused(*child);
  }
}

std::uint64_t core::take_ticket(lane_state& lane, const call& what) {
  ++lane.handles;
  if (what.kind != collective_kind::message) {
    const std::uint64_t ticket = lane.next_ticket++;
    last_ticket_.store(ticket, std::memory_order_relaxed);
    return ticket;
  }
  auto& counts = what.sending ? lane.sent : lane.received;
  if (counts.empty()) counts.resize(static_cast<std::size_t>(size_));
  return message_ticket | ++counts[static_cast<std::size_t>(what.peer)];
}

void core::drop(lane_state& lane, std::uint64_t ticket, const call&) noexcept {
  if (!cause_ && !lane.ended()) revoke_lane(lane, ticket, errc::dropped);
  close_handle(lane);
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
  if (op.outcome_) op.outcome_ = {};
  op.observer_ = nullptr;
  op.finished_ = op.adopted_ = op.is_reported_ = op.asked_around_ = false;
  op.since_ = {};
  if (why_not) {
    op.finished_ = true;
    op.outcome_ = as_seen_by(*lane.among, std::move(why_not.with_ticket(ticket & ~message_ticket)));
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
  // A receive is looked at after it has begun: the message may be here already.
  if (what.kind == collective_kind::message && what.sending &&
      departed(lane.among->in_epoch(what.peer), *lane.among)) {
    end_for_want_of(op, lane.among->in_epoch(what.peer));
    return &op;
  }
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
    outcome.with_ticket(op.ticket_ & ~message_ticket);
  }
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
  self.core_->revoke_lane(*self.lane_, self.ticket_, errc::timed_out);
}

}  // namespace chorale
