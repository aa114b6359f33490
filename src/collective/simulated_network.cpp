#include <chorale/collective/simulated_network.hpp>
#include <chorale/collective/simulated_wire.hpp>

#include <algorithm>
#include <string_view>

namespace chorale {

std::string describe(const simulated_trace::record& r, time_point start) {
  static constexpr std::string_view names[] = {
      "sent to", "got a frame of", "lost a frame of",  "saw the end of", "died",
      "left",    "notices rank",   "hears of leaving", "calls op",       "ends op"};
  const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(r.at - start).count();
  std::string text = "+" + std::to_string(passed) + " µs rank " + std::to_string(r.who) + " " +
                     std::string{names[static_cast<std::size_t>(r.what)]};
  if (r.what == simulated_event::died || r.what == simulated_event::left) return text;
  if (r.what != simulated_event::ended) return text + " " + std::to_string(r.detail);
  const auto code = static_cast<errc>(r.detail & 0xff);
  return text + " " + std::to_string(r.detail >> 8) + ": " + std::string{name_of(code)};
}

simulated_conditions simulated_conditions::drawn(std::uint64_t seed) noexcept {
  seeded_random random{seed ^ 0x6e6574776f726bu};
  simulated_conditions c;
  c.seed = seed;
  c.delay = 1 + random.below(4);
  c.jitter = random.one_in(3) ? 1 : random.one_in(3) ? 64 : 8;
  c.slow_one_in = 50 + random.below(400);
  c.slow_delay = 20 + random.below(400);
  c.stall_one_in = random.one_in(3) ? 3 : 24;
  c.split_one_in = random.one_in(3) ? 2 : 8;
  c.slots = random.one_in(3) ? 1 : static_cast<std::uint32_t>(2 + random.below(10));
  return c;
}

simulated_network::simulated_network(engine& loop, rank_t ranks, const simulated_conditions& conditions)
    : loop_{loop},
      ranks_{static_cast<std::size_t>(ranks)},
      conditions_{conditions},
      random_{conditions.seed},
      links_(ranks_ * ranks_),
      dead_(ranks_),
      busy_until_(ranks_),
      attended_(ranks_),
      due_(ranks_) {
  loop_.add(*this);
  for (rank_t a = 0; a < ranks; ++a)
    for (rank_t b = 0; b < ranks; ++b) {
      link(a, b).from = a;
      link(a, b).to = b;
    }
}

simulated_network::~simulated_network() {
  loop_.disarm(alarm_);
  loop_.remove(*this);
}

void simulated_network::attend(rank_t who, poller& what) {
  loop_.remove(what);
  attended_[static_cast<std::size_t>(who)] = &what;
}

std::unique_ptr<wire> simulated_network::connect(rank_t here, rank_t there) {
  return std::make_unique<simulated_wire>(*this, link(here, there), link(there, here));
}

// Time.

time_point simulated_network::after(std::uint64_t ticks) const noexcept {
  // On a multiple of the tick, so that few moments differ.
  const auto now = loop_.now().time_since_epoch();
  return time_point{now - now % simulated_tick + static_cast<std::int64_t>(ticks) * simulated_tick};
}

time_point simulated_network::draw_arrival() noexcept {
  if (random_.one_in(conditions_.slow_one_in)) return after(conditions_.slow_delay);
  return after(conditions_.delay + random_.below(conditions_.jitter));
}

void simulated_network::wake_at(time_point at, rank_t who) {
  if (!wakes_.emplace(at, who).second) return;
  if (alarm_.armed() && alarm_.when() <= at) return;
  loop_.disarm(alarm_);
  loop_.arm(alarm_, at);
}

void simulated_network::alarm::fired(operation& op) noexcept {
  simulated_network& net = static_cast<alarm&>(op).self;
  // Wires are asked in the engine's next turn.
  while (!net.wakes_.empty() && net.wakes_.begin()->first <= net.loop_.now()) {
    net.wake(net.wakes_.begin()->second);
    net.wakes_.erase(net.wakes_.begin());
  }
  if (!net.wakes_.empty()) net.loop_.arm(net.alarm_, net.wakes_.begin()->first);
}

std::size_t simulated_network::poll(std::size_t budget) noexcept {
  std::size_t moved = 0;
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (!due_[r]) continue;
    due_[r] = false;
    if (!attended_[r]) continue;
    const std::size_t here = attended_[r]->poll(budget);
    moved += here;
    if (here != 0) due_[r] = true;  // perhaps not all of it
  }
  return moved;
}

poller::arming simulated_network::arm() noexcept {
  for (std::size_t r = 0; r < ranks_; ++r)
    if (due_[r] && attended_[r]) return arming::busy;
  return arming::armed;
}

void simulated_network::compute(rank_t who, time_point until) {
  busy_until_[static_cast<std::size_t>(who)] = until;
  wake_at(until, who);
}

// Accidents.

void simulated_network::end(simulated_link& l, simulated_ending how, std::uint64_t within_ticks) {
  if (l.ending != simulated_ending::open) return;
  l.ending = how;
  if (how != simulated_ending::closed) return;
  l.ends_at = std::max(l.latest_arrival, after(1 + random_.below(within_ticks)));
  wake_at(l.ends_at, l.to);
}

void simulated_network::lose_some(simulated_link& l) noexcept {
  std::uint64_t arrived = l.head;
  while (arrived != l.tail && l.at(arrived).whole <= loop_.now()) ++arrived;
  l.tail = arrived + random_.below(l.tail - arrived + 1);
  l.latest_arrival = l.tail == l.head ? time_point{} : l.at(l.tail - 1).whole;
}

void simulated_network::kill(rank_t who, simulated_ending how) {
  dead_[static_cast<std::size_t>(who)] = true;
  trace_.note(loop_.now(), who, simulated_event::died, 0);
  for (rank_t other = 0; other < static_cast<rank_t>(ranks_); ++other) {
    if (other == who) continue;
    lose_some(link(who, other));
    end(link(who, other), how, 1000);
    end(link(other, who), simulated_ending::silent, 1);
  }
}

void simulated_network::leave(rank_t who) {
  trace_.note(loop_.now(), who, simulated_event::left, 0);
  for (rank_t other = 0; other < static_cast<rank_t>(ranks_); ++other) {
    if (other == who) continue;
    end(link(who, other), simulated_ending::closed, 50);
    end(link(other, who), simulated_ending::silent, 1);
  }
}

void simulated_network::cut(rank_t a, rank_t b) {
  for (simulated_link* l : {&link(a, b), &link(b, a)}) {
    lose_some(*l);
    end(*l, simulated_ending::closed, 1000);
  }
}

}  // namespace chorale
