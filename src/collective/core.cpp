#include <chorale/collective/core.hpp>
#include <chorale/collective/gpu_side.hpp>
#include <chorale/collective/message_execution.hpp>
#include <chorale/collective/plan_execution.hpp>
#include <chorale/collective/tiny_exchange.hpp>
#include <chorale/transport/shm_wire.hpp>

#include <cassert>
#include <utility>

namespace chorale {
namespace {

/// How often waiting operations are looked at for what only time tells.
constexpr duration patience_step = std::chrono::milliseconds{250};
/// A broken link is a symptom: for so long the guard may name the cause.
constexpr duration link_grace = std::chrono::milliseconds{100};
constexpr std::size_t remembered_keys = 65536;

std::string who_called(rank_t a, const signature& called_a, rank_t b, const signature& called_b) {
  return "rank " + std::to_string(a) + " called " + describe(called_a) + " where rank " + std::to_string(b) +
         " called " + describe(called_b);
}

}  // namespace

core::core(core_setup setup)
    : loop_{*setup.loop},
      rank_{setup.rank},
      size_{setup.size},
      epoch_{setup.epoch},
      max_lanes_{setup.max_lanes},
      settings_{setup.selection},
      plans_{setup.rank, setup.size},
      lines_{std::move(setup.lines)},
      departures_(static_cast<std::size_t>(setup.size)),
      lost_links_(static_cast<std::size_t>(setup.size)) {
  pairs_.resize(static_cast<std::size_t>(size_));
  all_lines_ = settings_.all_lines;
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
    if (!why) why = error{errc::revoked, "a rank has reset the communicator"};
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
  }
  return *slot;
}

result<lane_state*> core::open_lane(std::uint64_t key) {
  if (key == default_lane) {
    ++default_lane_->handles;
    return default_lane_;
  }
  if (ended_keys_.contains(key))
    return error{errc::invalid_state,
                 "lane " + std::to_string(key) +
                     " was used and dropped in this epoch; keep its handle, or take another key"};
  lane_state& lane = lane_of(key);
  ++lane.handles;
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
  lanes_.erase(key);
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

template <class Execution>
Execution& core::reuse(std::vector<Execution*>& free) noexcept {
  Execution& found = *free.back();
  free.pop_back();
  return found;
}

plan_execution& core::new_plan_execution() {
  if (!free_plan_executions_.empty()) return reuse(free_plan_executions_);
  free_plan_executions_.reserve(plan_executions_.size() + 1);
  return *plan_executions_.emplace_back(std::make_unique<plan_execution>());
}

message_execution& core::new_message_execution() {
  if (!free_message_executions_.empty()) return reuse(free_message_executions_);
  free_message_executions_.reserve(message_executions_.size() + 1);
  return *message_executions_.emplace_back(std::make_unique<message_execution>());
}

tiny_exchange& core::new_tiny_exchange() {
  if (!free_tiny_exchanges_.empty()) return reuse(free_tiny_exchanges_);
  free_tiny_exchanges_.reserve(tiny_exchanges_.size() + 1);
  return *tiny_exchanges_.emplace_back(std::make_unique<tiny_exchange>(size_));
}

void core::recycle(plan_execution& e) noexcept { free_plan_executions_.push_back(&e); }
void core::recycle(message_execution& e) noexcept { free_message_executions_.push_back(&e); }
void core::recycle(tiny_exchange& e) noexcept { free_tiny_exchanges_.push_back(&e); }

/// `why_not` is set when the call can not be served; the execution then only carries that error.
in_flight& core::new_execution(const call& what, error& why_not) {
  if (what.kind == collective_kind::message) return new_message_execution();
  const bool barrier = what.kind == collective_kind::barrier;
  auto reduce = find_host_reduction(barrier ? dtype::f32 : what.type, barrier ? reduction::sum : what.op);
  const algorithm_kind kind = choose_all_reduce(settings_, size_, what.bytes());
  if (kind == algorithm_kind::tiny && reduce) {
    tiny_exchange& tiny = new_tiny_exchange();
    tiny.prepare(*reduce);
    return tiny;
  }
  plan_execution& execution = new_plan_execution();
  plan_key key;
  key.algorithm = kind;
  key.in_place = !what.carries_nothing() && what.in == what.out;
  key.element_bytes = static_cast<std::uint32_t>(what.carries_nothing() ? sizeof(float) : size_of(what.type));
  key.count = what.carries_nothing() ? 1 : what.count;
  if (!reduce) {
    why_not = std::move(reduce).error();
    return execution;
  }
  auto plan = plans_.all_reduce(key);
  if (!plan) {
    why_not = std::move(plan).error();
    return execution;
  }
  execution.prepare(std::move(*plan), *reduce);
  return execution;
}

in_flight* core::start(lane_state& lane, std::uint64_t ticket, const call& what) {
  error why_not;
  if (cause_pending()) act_on_cause();
  if (cause_) {
    why_not = revoked_error();
  } else if (lane.ended()) {
    why_not = ticket == lane.cause_ticket
                  ? lane.cause
                  : error{errc::revoked, "the lane ended: " + lane.cause.message(), lane.cause.culprit()};
  } else if (lane.running == 0 && running_lanes_ >= max_lanes_) {
    why_not =
        error{errc::too_many_lanes, std::to_string(running_lanes_) + " lanes have operations in flight"};
  }
  error unusable;
  in_flight& op = why_not ? static_cast<in_flight&>(new_message_execution()) : new_execution(what, unusable);
  op.core_ = this;
  op.lane_ = &lane;
  op.ticket_ = ticket;
  op.what_ = what;
  op.signature_ = signature_of(what);
  op.outcome_ = {};
  op.observer_ = nullptr;
  op.finished_ = op.adopted_ = op.is_reported_ = false;
  op.since_ = {};
  if (why_not) {
    op.finished_ = true;
    op.outcome_ = std::move(why_not.with_ticket(ticket & ~message_ticket));
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
  if (what.kind == collective_kind::message && what.sending && departed(what.peer)) {
    end_for_want_of(op, what.peer);
    return &op;
  }
  op.begin();
  if (!op.finished_)
    if (const rank_t gone = departed_peer(op); gone != no_rank) end_for_want_of(op, gone);
  return &op;
}

void core::refuse(in_flight& op, error why) noexcept {
  // Ranks that made the same call refuse it too, and their signatures agree with ours.
  for (auto& link : pairs_)
    if (link) link->send_signature(op.lane_->key, op.ticket_, op.signature_);
  finish(op, std::move(why));
}

void core::finish(in_flight& op, error outcome) noexcept {
  if (std::exchange(op.finished_, true)) return;
  lane_state& lane = *op.lane_;
  if (outcome) {
    op.take_back();
    outcome.with_ticket(op.ticket_ & ~message_ticket);
    if (!(op.ticket_ & message_ticket))
      for (auto& link : pairs_)
        if (link) link->forget_ticket(lane.key, op.ticket_);
  }
  op.outcome_ = std::move(outcome);
  loop_.disarm(op.expiry_);
  if (op.is_reported_) guarded_->done(op.reported_);
  (op.previous_ ? op.previous_->next_ : lane.first) = op.next_;
  (op.next_ ? op.next_->previous_ : lane.last) = op.previous_;
  if (!(op.ticket_ & message_ticket))
    lane.history[op.ticket_ % lane.history.size()] = {op.ticket_, op.signature_};
  --running_;
  if (--lane.running == 0) --running_lanes_;
  close_handle(lane);
  if (op.observer_)
    op.observer_->ended(*op.observer_);
  else if (op.adopted_)
    op.recycle();
}

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

// Arrivals.

in_flight* core::find(const lane_state& lane, rank_t from, const frame_header& header) const noexcept {
  const bool message = (header.ticket & message_ticket) != 0;
  const bool for_sender = header.kind == frame_kind::ready;
  for (in_flight* op = lane.first; op; op = op->next_) {
    if (op->ticket_ != header.ticket) continue;
    if (!message || (op->what_.peer == from && op->what_.sending == for_sender)) return op;
  }
  return nullptr;
}

verdict core::judge(rank_t from, const frame_header& header) noexcept {
  if (cause_) return verdict::refused;
  const auto known = lanes_.find(header.lane);
  if (known == lanes_.end()) return ended_keys_.contains(header.lane) ? verdict::refused : verdict::current;
  lane_state& lane = *known->second;
  if (lane.ended()) return verdict::refused;
  const bool message = (header.ticket & message_ticket) != 0;
  if (!message && header.ticket >= lane.short_from) return verdict::refused;
  if (const in_flight* op = find(lane, from, header)) {
    if (op->signature_ == header.call) return verdict::current;
    mismatch(lane, header.ticket, op->signature_, from, header.call);
    return verdict::refused;
  }
  if (message || header.ticket >= lane.next_ticket) return verdict::current;
  const auto& past = lane.history[header.ticket % lane.history.size()];
  if (past.ticket > header.ticket) return verdict::refused;  // long over
  if (past.ticket < header.ticket) return verdict::current;  // taken and not started yet
  if (!(past.call == header.call)) mismatch(lane, header.ticket, past.call, from, header.call);
  return verdict::refused;
}

bool core::judge_early(in_flight& op) noexcept {
  for (auto& link : pairs_) {
    if (!link) continue;
    const frame_header* differs = nullptr;
    link->early(op.lane_->key, op.ticket_, [&](const frame_header& h) {
      if (find(*op.lane_, link->peer(), h) == &op && !(h.call == op.signature_)) differs = &h;
    });
    if (!differs) continue;
    const signature theirs = differs->call;  // the early arrivals go with the lane
    mismatch(*op.lane_, op.ticket_, op.signature_, link->peer(), theirs);
    return false;
  }
  return true;
}

// Failure of a lane.

void core::end_lane(lane_state& lane, std::uint64_t ticket, error at_ticket,
                    const error& elsewhere) noexcept {
  if (lane.ended()) return;
  const bool known_here = lane.handles != 0;  // else it waits for its first handle, to say why it ended
  lane.handles += known_here ? 1 : 0;         // stays while we are in here
  lane.cause = at_ticket;
  lane.cause_ticket = ticket;
  while (lane.first) finish(*lane.first, lane.first->ticket_ == ticket ? at_ticket : elsewhere);
  for (auto& link : pairs_)
    if (link) link->forget_lane(lane.key);
  if (known_here) close_handle(lane);
}

void core::tell_lane_ended(const lane_state& lane, std::uint64_t ticket,
                           const lane_revoke_body& body) noexcept {
  for (auto& link : pairs_)
    if (link) link->send_lane_revoke(lane.key, ticket, body);
}

void core::revoke_lane(lane_state& lane, std::uint64_t ticket, errc cause) noexcept {
  if (cause_ || lane.ended()) return;
  lane_revoke_body body;
  body.cause = static_cast<std::int32_t>(cause);
  body.culprit = body.origin = rank_;
  tell_lane_ended(lane, ticket, body);
  const error why{cause};
  end_lane(lane, ticket, why, error{errc::revoked, "the lane ended: " + why.message()});
}

void core::mismatch(lane_state& lane, std::uint64_t ticket, const signature& ours, rank_t other,
                    const signature& theirs) noexcept {
  lane_revoke_body body;
  body.cause = static_cast<std::int32_t>(errc::mismatch);
  body.culprit = other;
  body.origin = body.other = rank_;
  body.culprit_call = theirs;
  body.other_call = ours;
  const error why{errc::mismatch, who_called(rank_, ours, other, theirs), other};
  tell_lane_ended(lane, ticket, body);
  end_lane(lane, ticket, why, error{errc::revoked, "the lane ended: " + why.message(), other});
}

void core::lane_revoked(rank_t from, const frame_header& header, const lane_revoke_body& body) noexcept {
  if (cause_ || ended_keys_.contains(header.lane)) return;
  lane_state& lane = lane_of(header.lane);
  const auto cause = static_cast<errc>(body.cause);
  if (cause == errc::peer_left) return collectives_end(lane, header.ticket, body.culprit);
  const std::string detail =
      cause == errc::mismatch ? who_called(body.other, body.other_call, body.culprit, body.culprit_call)
                              : "rank " + std::to_string(from) + " ended lane " + std::to_string(header.lane);
  const error why{cause, detail, body.culprit};
  end_lane(lane, header.ticket, why, error{errc::revoked, "the lane ended: " + why.message(), body.culprit});
}

// A rank that left.

void core::end_for_want_of(in_flight& op, rank_t gone) noexcept {
  if ((op.ticket_ & message_ticket) != 0) return finish(op, error{errc::peer_left, {}, gone});
  // Ranks that wait for this one and not for the one that left learn of it here.
  lane_revoke_body body;
  body.cause = static_cast<std::int32_t>(errc::peer_left);
  body.culprit = gone;
  body.origin = rank_;
  const std::uint64_t ticket = op.ticket_;
  lane_state& lane = *op.lane_;
  tell_lane_ended(lane, ticket, body);
  collectives_end(lane, ticket, gone);
  finish(op, error{errc::peer_left, {}, gone});
}

void core::collectives_end(lane_state& lane, std::uint64_t ticket, rank_t gone) noexcept {
  if (lane.ended() || ticket >= lane.short_from) return;
  lane.short_from = ticket;
  lane.missing = gone;
  if (!lane.first) return;
  ++lane.handles;  // stays while we are in here
  for (in_flight* op = lane.first; op;) {
    in_flight* const next = op->next_;
    if (!(op->ticket_ & message_ticket) && op->ticket_ >= ticket)
      finish(*op, error{errc::peer_left, {}, gone});
    op = next;
  }
  close_handle(lane);
}

// Failure of the epoch.

error core::revoked_error() const { return error{errc::revoked, cause_.message(), cause_.culprit()}; }

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
}

void core::link_violated(rank_t from, const char* how) noexcept {
  if (cause_) return;
  if (guarded_)
    static_cast<void>(guarded_->revoke(revoke_scope::all, 0, errc::protocol_error, from, last_ticket()));
  revoke_all(error{errc::protocol_error, how, from});
}

void core::link_broken(rank_t to, error why) noexcept {
  if (cause_) return;
  lost_links_[static_cast<std::size_t>(to)] = error{why.code(), why.detail(), to};
  if (links_expire_ == never) links_expire_ = loop_.now() + link_grace;
  loop_.disarm(patience_);
  loop_.arm(patience_, links_expire_);
  departures_pending_.store(true, std::memory_order_relaxed);  // it may have left in good order
}

void core::act_on_lost_links() noexcept {
  links_expire_ = never;
  for (rank_t r = 0; r < size_ && !cause_; ++r) {
    const error& why = lost_links_[static_cast<std::size_t>(r)];
    if (!why || departed(r)) continue;
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
    if (departed(r) && op.needs(r)) return r;
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
    std::vector<in_flight*> stuck;
    for (auto& [key, lane] : lanes_)
      for (in_flight* op = lane->first; op; op = op->next_)
        if (op->needs(r)) stuck.push_back(op);
    for (in_flight* op : stuck)
      if (!op->finished_) end_for_want_of(*op, r);
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
  report_slow_operations();
  if (running_ != 0 && !patience_.armed())
    loop_.arm(patience_, std::min(links_expire_, loop_.now() + patience_step));
}

void core::report_slow_operations() noexcept {
  if (!guarded_ || running_ == 0) return;
  std::vector<rank_t> waits_for;
  const time_point now = loop_.now();
  for (auto& [key, lane] : lanes_) {
    for (in_flight* op = lane->first; op; op = op->next_) {
      if (op->is_reported_) continue;
      if (op->since_ == time_point{}) {  // seen for the first time: it has waited for at most one step
        op->since_ = now;
        continue;
      }
      waits_for.clear();
      for (rank_t r = 0; r < size_; ++r)
        if (r != rank_ && op->needs(r)) waits_for.push_back(r);
      op->reported_ = guarded_->pending(key, op->ticket_, waits_for, op->since_);
      op->is_reported_ = true;
    }
  }
}

// The poller.

std::size_t core::poll(std::size_t budget) noexcept {
  act_on_cause();
  std::size_t moved = 0;
  for (auto& link : pairs_)
    if (link) moved += link->progress(budget);
  if (departures_pending_.load(std::memory_order_relaxed)) act_on_departures();
  return moved;
}

poller::arming core::arm() noexcept {
  if (cause_pending() || departures_pending_.load(std::memory_order_acquire)) return arming::busy;
  if (running_ != 0 && !patience_.armed()) loop_.arm(patience_, loop_.now() + patience_step);
  for (auto& link : pairs_)
    if (link && !link->arm()) return arming::busy;
  return arming::armed;
}

void core::disarm() noexcept {
  for (auto& link : pairs_)
    if (link) link->disarm();
}

}  // namespace chorale
