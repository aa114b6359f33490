#include "simulated_run.hpp"
#include <chorale/async/sleep.hpp>

#include <algorithm>
#include <cstdio>

namespace chorale::testing {
namespace {

using namespace std::chrono_literals;

/// By then everything has ended: the longest news of a death takes less.
constexpr duration longest = 10s;
/// How long a guard waits for a sign of life.
constexpr std::uint64_t peer_timeout_ticks = 2'000'000;

/// With more ranks only those are polled of whom something is due.
constexpr rank_t engine_polls_up_to = 16;

simulated_conditions conditions_of(const scenario& s, planted bug) {
  simulated_conditions c = s.conditions;
  c.slot_reused_early = bug == planted::slot_reused_early;
  return c;
}

}  // namespace

simulated_run::simulated_run(const scenario& s, plan_store& plans, planted bug)
    : script_{s},
      plans_{plans},
      bug_{bug},
      net_{loop_, s.ranks, conditions_of(s, bug)},
      calls_(static_cast<std::size_t>(s.ranks) * s.calls.size()),
      fates_(s.faults.size()),
      callers_(s.calls.size()) {
  if (bug == planted::skipped_signature_check || bug == planted::lost_lane_revoke)
    net_.inspect_with(
        [this](rank_t from, rank_t to, frame_header& header) { return inspect(from, to, header); });
  auto& kept = plans_[s.ranks];
  simulated_guard_setup guards;
  for (rank_t r = 0; r < s.ranks; ++r) {
    core_setup setup;
    setup.loop = &loop_;
    setup.rank = r;
    setup.size = s.ranks;
    setup.epoch = 1;
    setup.selection = s.selection;
    setup.wires.resize(static_cast<std::size_t>(s.ranks));
    setup.lines.resize(static_cast<std::size_t>(s.ranks));
    for (rank_t other = 0; other < s.ranks; ++other)
      if (other != r) setup.wires[static_cast<std::size_t>(other)] = net_.connect(r, other);
    cores_.push_back(std::make_unique<core>(std::move(setup)));
    if (kept.size() == static_cast<std::size_t>(s.ranks))
      on(r).everybody().plans() = std::move(kept[static_cast<std::size_t>(r)]);
    if (s.ranks > engine_polls_up_to) net_.attend(r, on(r));
    guards.members.push_back(cores_.back().get());
  }
  guards.hop_ticks = s.hop_ticks;
  guards.drops_forwards = bug == planted::dropped_forward;
  guard_.emplace(net_, std::move(guards));
}

simulated_run::~simulated_run() {
  auto& kept = plans_[script_.ranks];
  kept.clear();
  for (auto& c : cores_) kept.push_back(std::move(c->everybody().plans()));
}

// The ranks.

void simulated_run::prepare(rank_t me, std::size_t index) {
  seeded_random dice{script_.seed * 64 + static_cast<std::uint64_t>(me) * 7919 + index};
  auto& mine = state(me, index);
  const call what = call_of(script_, me, index);
  const bool disagrees = fault_at(me, index, fault_kind::mismatch) != nullptr;
  mine.in.resize(what.count);
  const bool receives_only = (what.kind == collective_kind::message && !what.sending) ||
                             (what.kind == collective_kind::broadcast && what.root != me);
  if (receives_only) {
    std::ranges::fill(mine.in, -1.0F);
    return;
  }
  for (std::size_t i = 0; i < what.count; ++i)
    mine.in[i] = disagrees ? poison : static_cast<float>(value_of(me, index, i));
  if (reduces(what.kind) && dice.one_in(2)) mine.out.assign(what.count, -1);
}

const planned_fault* simulated_run::fault_at(rank_t me, std::size_t index, fault_kind kind) const {
  for (const planned_fault& f : script_.faults)
    if (f.kind == kind && f.rank == me && f.call == index) return &f;
  return nullptr;
}

void simulated_run::start(rank_t me, std::size_t index) {
  auto& mine = state(me, index);
  call what = call_of(script_, me, index);
  const bool collective = what.kind != collective_kind::message;
  if (collective || what.sending) what.in = reinterpret_cast<const std::byte*>(mine.in.data());
  if (collective || !what.sending) what.out = reinterpret_cast<std::byte*>(mine.result().data());
  if (what.kind == collective_kind::barrier) what.in = what.out = nullptr;
  const std::uint64_t lane = script_.calls[index].lane;
  net_.trace().note(loop_.now(), me, simulated_event::called, index);
  if (const planned_fault* f = fault_at(me, index, fault_kind::drop)) {
    state_of(*f).happened = true;
    ticket unused = place(on(me), what, lane);
    return;
  }
  deadline limit;
  if (const planned_fault* f = fault_at(me, index, fault_kind::deadline)) {
    const time_point at = loop_.now() + static_cast<std::int64_t>(f->ticks) * simulated_tick;
    limit = deadline{at};
    state_of(*f).from = at;
  }
  if (const planned_fault* f = fault_at(me, index, fault_kind::mismatch))
    state_of(*f).happened = true;
  else
    ++callers_[index];
  mine.running.emplace(place(on(me), what, lane, limit).start());
}

/// The rank's calls in an order of its own that keeps every lane's.
std::vector<std::size_t> simulated_run::draw_order(rank_t me, seeded_random& dice) const {
  std::map<std::uint64_t, std::vector<std::size_t>> by_lane;
  std::size_t last = script_.calls.size();
  for (const planned_fault& f : script_.faults)
    if (f.kind == fault_kind::leave && f.rank == me) last = std::min(last, f.call + 1);
  for (std::size_t i = last; i-- > 0;)
    if (script_.calls[i].concerns(me)) by_lane[script_.calls[i].lane].push_back(i);
  std::vector<std::size_t> order;
  while (!by_lane.empty()) {
    auto from = std::next(by_lane.begin(), static_cast<std::ptrdiff_t>(dice.below(by_lane.size())));
    order.push_back(from->second.back());
    from->second.pop_back();
    if (from->second.empty()) by_lane.erase(from);
  }
  return order;
}

task<void> simulated_run::live(simulated_run& self, rank_t me) {
  seeded_random dice{self.script_.seed * 1024 + static_cast<std::uint64_t>(me)};
  const std::vector<std::size_t> order = self.draw_order(me, dice);
  std::vector<lane_state*> lanes;
  for (std::uint64_t key : {1001u, 1002u}) {
    auto opened = self.on(me).open_lane(key);
    if (opened) lanes.push_back(*opened);
  }
  std::vector<std::size_t> pending;
  std::vector<bool> begun(self.script_.calls.size());
  // A call may be awaited once every earlier one of the program has been started here: then no two ranks wait
  // for each other.
  const auto may_await = [&](std::size_t index) {
    return std::ranges::all_of(order, [&](std::size_t i) { return i >= index || begun[i]; });
  };
  for (std::size_t next = 0; next < order.size() || !pending.empty();) {
    if (dice.one_in(3)) {
      const time_point until = self.net_.after(1 + dice.below(self.script_.think_ticks));
      if (dice.one_in(2)) self.net_.compute(me, until);
      co_await sleep_until{until};
    }
    if (self.net_.dead(me)) co_return;
    if (next < order.size() && !dice.one_in(4)) {
      begun[order[next]] = true;
      self.prepare(me, order[next]);
      self.start(me, order[next]);
      if (self.state(me, order[next]).running) pending.push_back(order[next]);
      ++next;
      continue;
    }
    if (pending.empty()) continue;
    const std::size_t choice = dice.below(pending.size());
    const std::size_t index = pending[choice];
    if (!may_await(index)) continue;
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(choice));
    if (dice.one_in(20) && !self.fault_at(me, index, fault_kind::cancel)) {
      self.state(me, index).running.reset();  // the communicator finishes it
      continue;
    }
    task<void> awaiting = await_call(self, me, index);
    co_await std::move(awaiting);
    if (self.net_.dead(me)) co_return;
  }
  for (duration pause = 50 * simulated_tick; self.on(me).in_flight_count() != 0;) {
    co_await sleep_for(pause);
    pause = std::min<duration>(2 * pause, 50ms);
  }
  if (self.net_.dead(me)) co_return;
  for (const planned_fault& f : self.script_.faults) {
    if (f.kind != fault_kind::leave || f.rank != me) continue;
    task<void> leaving = say_goodbye(self, me, self.state_of(f));
    co_await std::move(leaving);
    co_return;
  }
  if (dice.one_in(2))
    for (lane_state* lane : lanes) self.on(me).close_handle(*lane);
}

task<void> simulated_run::say_goodbye(simulated_run& self, rank_t me, fault_state& fate) {
  core& mine = self.on(me);
  // As an epoch does: what waits for room goes out first, for a moment at most.
  for (int turn = 0; turn < 200; ++turn) {
    bool waiting = false;
    for (rank_t r = 0; r < mine.size(); ++r) waiting = waiting || (r != me && mine.link_to(r).wants_room());
    if (!waiting) break;
    co_await sleep_for(5 * simulated_tick);
  }
  if (self.net_.dead(me)) co_return;
  fate.happened = true;
  mine.leave();
  self.net_.leave(me);
  self.guard_->announces_leaving(me, mine.last_ticket(),
                                 std::min<std::uint64_t>(self.script_.hop_ticks, 50'000));
}

task<void> simulated_run::keep(started op, std::optional<result<void>>& into) {
  result<void> outcome = co_await as_result(std::move(op));
  into.emplace(std::move(outcome));
}

task<void> simulated_run::await_call(simulated_run& self, rank_t me, std::size_t index) {
  auto& mine = self.state(me, index);
  const environment& here = co_await this_environment{};
  std::optional<result<void>> outcome;
  scope awaiting{here};
  awaiting.spawn(keep(std::move(*mine.running), outcome));
  mine.running.reset();
  if (const planned_fault* f = self.fault_at(me, index, fault_kind::cancel)) {
    co_await sleep_for(static_cast<std::int64_t>(f->ticks) * simulated_tick);
    self.state_of(*f).happened = true;
    awaiting.request_stop(errc::cancelled);
  }
  co_await awaiting.join();
  if (self.net_.dead(me)) co_return;
  self.judge(me, index, *outcome);
  std::ranges::fill(mine.in, scribble);
  std::ranges::fill(mine.out, scribble);
  mine.scribbled = true;
}

// Accidents.

task<void> simulated_run::be_struck(simulated_run& self, std::size_t index) {
  const planned_fault& f = self.script_.faults[index];
  co_await sleep_for(static_cast<std::int64_t>(f.ticks) * simulated_tick);
  self.fates_[index].happened = true;
  if (f.kind == fault_kind::cut) {
    self.net_.cut(f.rank, f.other);
    co_return;
  }
  self.net_.kill(f.rank, f.silent ? simulated_ending::silent : simulated_ending::closed);
  self.on(f.rank).revoke_all(error{errc::cancelled, "its process ended"});
  const bool freezes = f.kind == fault_kind::freeze;
  const std::uint64_t at_least = freezes ? peer_timeout_ticks : 0;
  const errc cause = freezes ? errc::peer_unresponsive : errc::peer_lost;
  std::vector<rank_t> witnesses;
  std::vector<rank_t> leavers;  // their guards may be gone before they notice anything
  for (rank_t r = 0; r < self.script_.ranks; ++r) {
    bool strikes = false;
    bool leaves = false;
    for (const planned_fault& other : self.script_.faults) {
      if (other.rank != r) continue;
      strikes = strikes || other.kind == fault_kind::death || other.kind == fault_kind::freeze;
      leaves = leaves || other.kind == fault_kind::leave;
    }
    if (!strikes) (leaves ? leavers : witnesses).push_back(r);
  }
  if (witnesses.empty()) witnesses = leavers;
  if (f.one_witness && !witnesses.empty())
    witnesses = {witnesses[self.net_.random().below(witnesses.size())]};
  for (const rank_t r : witnesses)
    self.guard_->witnesses(r, f.rank, cause, at_least + 1 + self.net_.random().below(self.script_.hop_ticks));
}

task<void> simulated_run::everybody(simulated_run& self) {
  const environment& here = co_await this_environment{};
  scope all{here};
  for (rank_t r = 0; r < self.script_.ranks; ++r) all.spawn(live(self, r));
  for (std::size_t i = 0; i < self.script_.faults.size(); ++i) {
    const fault_kind kind = self.script_.faults[i].kind;
    if (kind == fault_kind::death || kind == fault_kind::freeze || kind == fault_kind::cut)
      all.spawn(be_struck(self, i));
  }
  co_await all.join();
  co_await sleep_for(5ms);  // what is still under way arrives, and must do no harm
}

void simulated_run::give_up() noexcept {
  hung_ = true;
  std::string waiting;
  for (auto& c : cores_)
    if (c->in_flight_count() != 0) waiting += " " + std::to_string(c->rank());
  judgement_.complaints.push_back("something waits for ever; operations are in flight on ranks" + waiting);
  for (auto& c : cores_) c->revoke_all(error{errc::cancelled, "the simulation gave up"});
}

bool simulated_run::inspect(rank_t, rank_t to, frame_header& header) {
  if (header.kind == frame_kind::lane_revoke) {
    if (bug_ == planted::lost_lane_revoke && !lane_revoke_lost_) return lane_revoke_lost_ = true, false;
    return true;
  }
  if (bug_ != planted::skipped_signature_check || header.kind == frame_kind::credit) return true;
  for (std::size_t i = 0; i < script_.calls.size(); ++i) {
    const planned_call& c = script_.calls[i];
    if (c.collective() && c.lane == header.lane && c.ticket == header.ticket)
      header.call = signature_of(call_of(script_, to, i));
  }
  return true;
}

judgement simulated_run::run(bool print_trace) {
  if (print_trace) net_.trace().keep_records();
  loop_.arm(limit_, loop_.now() + longest);
  try {
    loop_.run(everybody(*this));
  } catch (const std::exception& e) {
    judgement_.complaints.push_back(std::string{"an exception: "} + e.what());
  }
  loop_.disarm(limit_);
  judge_leftovers();
  for (const auto& r : net_.trace().records())
    std::printf("%s\n", describe(r, virtual_backend::start).c_str());
  judgement_.digest = net_.trace().digest();
  return std::move(judgement_);
}

judgement play(const scenario& s, plan_store& plans, planted bug, bool print_trace) {
  simulated_run one{s, plans, bug};
  return one.run(print_trace);
}

}  // namespace chorale::testing
