#include "simulation.hpp"

#include "rig.hpp"
#include <chorale/async/sleep.hpp>
#include <chorale/async/virtual_backend.hpp>

#include <algorithm>
#include <cstdio>

namespace chorale::testing {
namespace {

using namespace std::chrono_literals;

/// By then everything has ended: the longest news of a death takes less.
constexpr duration longest = 10s;
/// How long a guard waits for a sign of life.
constexpr std::uint64_t peer_timeout_ticks = 2'000'000;
constexpr duration link_grace = 100ms;

/// With more ranks only those are polled of whom something is due.
constexpr rank_t engine_polls_up_to = 16;

constexpr float poison = 1 << 20;    // what a disagreeing rank contributes
constexpr float poisoned = 1 << 18;  // sums of honest values stay far below
constexpr float scribble = -7777;    // what an owner writes into a buffer that is its own again

std::uint64_t value_of(rank_t r, std::size_t call, std::size_t i) {
  return (static_cast<std::uint64_t>(r) * 31 + call * 17 + i * 7) & 63;
}

struct call_state_of_rank {
  std::vector<float> in;
  std::vector<float> out;  // empty: in place
  std::optional<started> running;
  bool scribbled = false;
  time_point expires = never;
  [[nodiscard]] std::vector<float>& result() { return out.empty() ? in : out; }
};

class simulation {
 public:
  simulation(const scenario& s, plan_store& plans, planted bug);
  ~simulation();
  judgement run(bool print_trace);

 private:
  struct fault_state {
    bool happened = false;
    time_point from = never;  // deadlines
  };
  struct limit : timer {
    explicit limit(simulation& s) noexcept : timer{fired}, self{s} {}
    static void fired(operation& op) noexcept { static_cast<limit&>(op).self.give_up(); }
    simulation& self;
  };

  static task<void> everybody(simulation& self);
  static task<void> live(simulation& self, rank_t me);
  static task<void> await_call(simulation& self, rank_t me, std::size_t index);
  static task<void> keep(started op, std::optional<result<void>>& into);
  static task<void> be_struck(simulation& self, std::size_t fault);
  static task<void> say_goodbye(simulation& self, rank_t me, fault_state& fate);

  void prepare(rank_t me, std::size_t index);
  void start(rank_t me, std::size_t index);
  std::vector<std::size_t> draw_order(rank_t me, seeded_random& dice) const;
  [[nodiscard]] const planned_fault* fault_at(rank_t me, std::size_t index, fault_kind kind) const;
  fault_state& state_of(const planned_fault& f) {
    return fates_[static_cast<std::size_t>(&f - script_.faults.data())];
  }

  void judge(rank_t me, std::size_t index, const result<void>& outcome);
  void judge_success(rank_t me, std::size_t index);
  bool explains(const planned_fault& f, rank_t me, std::size_t index, const error& why);
  bool lane_fault_explains(const planned_fault& f, rank_t me, std::size_t index, const error& why);
  void judge_leftovers();
  void complain(rank_t me, std::size_t index, const std::string& what);
  void give_up() noexcept;
  bool inspect(rank_t from, rank_t to, frame_header& header);

  [[nodiscard]] call_state_of_rank& state(rank_t r, std::size_t index) {
    return calls_[static_cast<std::size_t>(r) * script_.calls.size() + index];
  }
  [[nodiscard]] core& on(rank_t r) { return *cores_[static_cast<std::size_t>(r)]; }

  const scenario& script_;
  plan_store& plans_;
  planted bug_;
  engine loop_{std::make_unique<virtual_backend>()};
  simulated_network net_;
  std::vector<std::unique_ptr<core>> cores_;
  std::optional<simulated_guard> guard_;
  std::vector<call_state_of_rank> calls_;  // by rank, then call
  std::vector<fault_state> fates_;
  std::vector<rank_t> callers_;  // by call: ranks that made it
  judgement judgement_;
  limit limit_{*this};
  bool hung_ = false;
  bool lane_revoke_lost_ = false;
};

simulated_conditions conditions_of(const scenario& s, planted bug) {
  simulated_conditions c = s.conditions;
  c.slot_reused_early = bug == planted::slot_reused_early;
  return c;
}

simulation::simulation(const scenario& s, plan_store& plans, planted bug)
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
      on(r).plans() = std::move(kept[static_cast<std::size_t>(r)]);
    if (s.ranks > engine_polls_up_to) net_.attend(r, on(r));
    guards.members.push_back(cores_.back().get());
  }
  guards.hop_ticks = s.hop_ticks;
  guards.drops_forwards = bug == planted::dropped_forward;
  guard_.emplace(net_, std::move(guards));
}

simulation::~simulation() {
  auto& kept = plans_[script_.ranks];
  kept.clear();
  for (auto& c : cores_) kept.push_back(std::move(c->plans()));
}

// The ranks.

void simulation::prepare(rank_t me, std::size_t index) {
  seeded_random dice{script_.seed * 64 + static_cast<std::uint64_t>(me) * 7919 + index};
  auto& mine = state(me, index);
  const call what = call_of(script_, me, index);
  const bool disagrees = fault_at(me, index, fault_kind::mismatch) != nullptr;
  mine.in.resize(what.count);
  if (what.kind == collective_kind::message && !what.sending) {
    std::ranges::fill(mine.in, -1.0F);
    return;
  }
  for (std::size_t i = 0; i < what.count; ++i)
    mine.in[i] = disagrees ? poison : static_cast<float>(value_of(me, index, i));
  if (what.kind == collective_kind::all_reduce && dice.one_in(2)) mine.out.assign(what.count, -1);
}

const planned_fault* simulation::fault_at(rank_t me, std::size_t index, fault_kind kind) const {
  for (const planned_fault& f : script_.faults)
    if (f.kind == kind && f.rank == me && f.call == index) return &f;
  return nullptr;
}

void simulation::start(rank_t me, std::size_t index) {
  auto& mine = state(me, index);
  call what = call_of(script_, me, index);
  if (what.kind == collective_kind::all_reduce || what.sending)
    what.in = reinterpret_cast<const std::byte*>(mine.in.data());
  if (what.kind == collective_kind::all_reduce || !what.sending)
    what.out = reinterpret_cast<std::byte*>(mine.result().data());
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
std::vector<std::size_t> simulation::draw_order(rank_t me, seeded_random& dice) const {
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

task<void> simulation::live(simulation& self, rank_t me) {
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

task<void> simulation::say_goodbye(simulation& self, rank_t me, fault_state& fate) {
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

task<void> simulation::keep(started op, std::optional<result<void>>& into) {
  result<void> outcome = co_await as_result(std::move(op));
  into.emplace(std::move(outcome));
}

task<void> simulation::await_call(simulation& self, rank_t me, std::size_t index) {
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

task<void> simulation::be_struck(simulation& self, std::size_t index) {
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

task<void> simulation::everybody(simulation& self) {
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

void simulation::give_up() noexcept {
  hung_ = true;
  std::string waiting;
  for (auto& c : cores_)
    if (c->in_flight_count() != 0) waiting += " " + std::to_string(c->rank());
  judgement_.complaints.push_back("something waits for ever; operations are in flight on ranks" + waiting);
  for (auto& c : cores_) c->revoke_all(error{errc::cancelled, "the simulation gave up"});
}

bool simulation::inspect(rank_t, rank_t to, frame_header& header) {
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

judgement simulation::run(bool print_trace) {
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

// Judgement.

void simulation::complain(rank_t me, std::size_t index, const std::string& what) {
  if (hung_ || judgement_.complaints.size() > 10) return;
  judgement_.complaints.push_back("rank " + std::to_string(me) + ", call " + std::to_string(index) + ": " +
                                  what);
}

void simulation::judge(rank_t me, std::size_t index, const result<void>& outcome) {
  const errc code = outcome ? errc::ok : outcome.error().code();
  net_.trace().note(loop_.now(), me, simulated_event::ended, index << 8 | static_cast<std::uint64_t>(code));
  auto& mine = state(me, index);
  if (!fault_at(me, index, fault_kind::mismatch))
    for (const float x : mine.result())
      if (x > poisoned) {
        complain(me, index, "a disagreeing rank's data was used");
        break;
      }
  if (outcome) {
    ++judgement_.successes;
    return judge_success(me, index);
  }
  ++judgement_.failures;
  for (const planned_fault& f : script_.faults)
    if (explains(f, me, index, outcome.error())) return;
  complain(me, index, "nothing that happened explains this: " + outcome.error().message());
}

void simulation::judge_success(rank_t me, std::size_t index) {
  const planned_call& c = script_.calls[index];
  if (c.collective() && callers_[index] != script_.ranks)
    complain(me, index,
             "it succeeded although only " + std::to_string(callers_[index]) + " ranks had called it");
  auto& got = state(me, index).result();
  if (c.kind == collective_kind::message && me == c.to) {
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] != static_cast<float>(value_of(c.from, index, i)))
        return complain(me, index, "element " + std::to_string(i) + " is " + std::to_string(got[i]));
    return;
  }
  if (c.kind != collective_kind::all_reduce) return;
  float expected[64] = {};
  for (std::size_t i = 0; i < 64; ++i)
    for (rank_t r = 0; r < script_.ranks; ++r) expected[i] += static_cast<float>(value_of(r, index, i));
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != expected[i % 64])
      return complain(me, index,
                      "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
                          std::to_string(expected[i % 64]));
}

bool simulation::lane_fault_explains(const planned_fault& f, rank_t me, std::size_t index, const error& why) {
  if (script_.calls[f.call].lane != script_.calls[index].lane) return false;
  const fault_state& fate = state_of(f);
  static constexpr errc codes[] = {errc::timed_out, errc::cancelled, errc::dropped, errc::mismatch};
  const bool happened = f.kind == fault_kind::deadline ? loop_.now() >= fate.from : fate.happened;
  if (!happened) return false;
  // What a rank calls by mistake may be something that it cannot do at all.
  if (f.kind == fault_kind::mismatch && me == f.rank && index == f.call && why == errc::unsupported)
    return true;
  const bool its_own = why.culprit() == no_rank && me == f.rank;
  const bool named = why.culprit() == f.rank ||
                     (f.kind == fault_kind::mismatch &&
                      why.detail().find("rank " + std::to_string(f.rank) + " called") != std::string::npos);
  if (!its_own && !named) return false;
  if (why == errc::revoked) return true;
  // Messages of several pairs share their numbers, so that the one that failed may not be this one.
  return why.code() == codes[static_cast<std::size_t>(f.kind)] &&
         (index == f.call || !script_.calls[index].collective());
}

bool simulation::explains(const planned_fault& f, rank_t me, std::size_t index, const error& why) {
  if (f.kind < fault_kind::death) return lane_fault_explains(f, me, index, why);
  const bool names_other = f.kind == fault_kind::cut && why.culprit() == f.other;
  if (!state_of(f).happened || (why.culprit() != f.rank && !names_other)) return false;
  if (why == errc::revoked) return true;
  // A broken link is given as the cause only when guards take longer than the patience of communicators.
  const bool slow_guards = static_cast<std::int64_t>(script_.hop_ticks) * 5 * simulated_tick > link_grace;
  switch (f.kind) {
    case fault_kind::death:
      return why == errc::peer_lost || (why == errc::link_lost && !f.silent && slow_guards);
    case fault_kind::freeze:
      return why == errc::peer_unresponsive;
    case fault_kind::cut:
      return why == errc::link_lost;
    case fault_kind::leave:
      // Where something else ended the leaver's call before, it left without it.
      return why == errc::peer_left && (index > f.call || script_.faults.size() > 1);
    default:
      return false;
  }
}

void simulation::judge_leftovers() {
  if (hung_) return;
  for (rank_t r = 0; r < script_.ranks; ++r) {
    for (std::size_t i = 0; i < script_.calls.size(); ++i) {
      auto& mine = state(r, i);
      if (!mine.scribbled) continue;
      for (const auto* buffer : {&mine.in, &mine.out})
        if (std::ranges::any_of(*buffer, [](float x) { return x != scribble; }))
          complain(r, i, "its buffer was written after its end");
    }
    if (!script_.faults.empty()) continue;
    for (rank_t other = 0; other < script_.ranks; ++other) {
      if (other == r) continue;
      pair& link = on(r).link_to(other);
      if (link.outstanding() != 0 || link.early_arrivals() != 0)
        complain(r, 0, "something is left over in the pair with rank " + std::to_string(other));
    }
  }
}

}  // namespace

judgement play(const scenario& s, plan_store& plans, planted bug, bool print_trace) {
  simulation one{s, plans, bug};
  return one.run(print_trace);
}

}  // namespace chorale::testing
