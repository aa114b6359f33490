#include "simulated_scenario.hpp"

namespace chorale::testing {
namespace {

/// Around the limits: a line, the eager limit, the smallest sizes of other algorithms.
std::size_t draw_count(seeded_random& random, rank_t ranks) {
  static constexpr std::size_t small[] = {0, 1, 7, 8, 9, 63, 64, 65, 1000, 2047, 2048, 2049};
  static constexpr std::size_t middle[] = {4096, 4097, 5000, 10000};
  static constexpr std::size_t large[] = {65535, 65536, 65537, 200000};
  if (random.one_in(ranks > 16 ? 25 : 4)) return middle[random.below(std::size(middle))];
  if (ranks <= 8 && random.one_in(12)) return large[random.below(std::size(large))];
  return small[random.below(ranks > 16 && !random.one_in(4) ? 8 : std::size(small))];
}

planned_call draw_call(seeded_random& random, rank_t ranks, std::uint64_t lanes) {
  planned_call c;
  const std::uint64_t lane = random.below(lanes);
  c.lane = lane == 0 ? 0 : 1000 + lane;
  c.count = draw_count(random, ranks);
  if (random.one_in(5)) {
    c.kind = collective_kind::barrier;
    c.count = 0;
  } else if (ranks > 1 && random.one_in(3)) {
    c.kind = collective_kind::message;
    c.from = static_cast<rank_t>(random.below(static_cast<std::uint64_t>(ranks)));
    c.to = static_cast<rank_t>(
        (c.from + 1 + static_cast<rank_t>(random.below(static_cast<std::uint64_t>(ranks - 1)))) % ranks);
    c.tag = static_cast<tag_t>(random.below(3));
  } else if (random.one_in(2)) {
    static constexpr collective_kind one_way[] = {collective_kind::broadcast, collective_kind::reduce,
                                                  collective_kind::scan};
    c.kind = one_way[random.below(std::size(one_way))];
    c.from = c.kind == collective_kind::scan
                 ? 0
                 : static_cast<rank_t>(random.below(static_cast<std::uint64_t>(ranks)));
  }
  return c;
}

planned_fault draw_fault(seeded_random& random, const scenario& s) {
  planned_fault f;
  f.kind = static_cast<fault_kind>(random.below(8));
  f.rank = static_cast<rank_t>(random.below(static_cast<std::uint64_t>(s.ranks)));
  f.other = static_cast<rank_t>(
      (f.rank + 1 + static_cast<rank_t>(random.below(static_cast<std::uint64_t>(s.ranks - 1)))) % s.ranks);
  f.call = random.below(s.calls.size());
  f.ticks = random.up_to_power(f.kind >= fault_kind::death ? 9 : 11);
  f.silent = random.one_in(2) || f.kind == fault_kind::freeze;
  f.one_witness = random.one_in(2);
  // Faults of a call happen to somebody who makes it; ranks disagree about collectives, or about a message.
  const planned_call& c = s.calls[f.call];
  if (!c.concerns(f.rank)) f.rank = c.to;
  if (f.kind == fault_kind::mismatch) {
    f.variant = static_cast<unsigned>(random.below(3));
    if (!c.collective()) f.rank = c.to;
  }
  if (f.other == f.rank) f.other = (f.rank + 1) % s.ranks;
  return f;
}

}  // namespace

scenario draw_scenario(std::uint64_t seed, rank_t ranks) {
  seeded_random random{seed * 2 + 1};
  scenario s;
  s.seed = seed;
  s.ranks = ranks;
  s.conditions = simulated_conditions::drawn(seed);
  static constexpr algorithm_kind forced[] = {algorithm_kind::recursive_doubling, algorithm_kind::ring,
                                              algorithm_kind::slice_owner};
  if (random.one_in(ranks > 16 ? 40 : 2)) s.selection.force(forced[random.below(std::size(forced))]);
  const std::uint64_t lanes = 1 + random.below(3);
  const std::uint64_t calls = 1 + random.below(ranks > 16 ? 4 : 10);
  std::vector<std::uint64_t> next(lanes, 1);
  for (std::uint64_t i = 0; i < calls; ++i) {
    planned_call& c = s.calls.emplace_back(draw_call(random, ranks, lanes));
    if (c.collective()) c.ticket = next[c.lane == 0 ? 0 : c.lane - 1000]++;
  }
  if (ranks > 1) {
    const std::uint64_t faults = random.one_in(5) ? 0 : random.one_in(4) ? 2 : 1;
    for (std::uint64_t i = 0; i < faults; ++i) s.faults.push_back(draw_fault(random, s));
    // Two accidents of one rank would be one.
    if (s.faults.size() == 2 && s.faults[0].rank == s.faults[1].rank) s.faults.pop_back();
  }
  // Given up alone, such a receive would leave its sender waiting: only where nothing goes wrong.
  for (std::size_t i = 0; i < s.calls.size() && s.faults.empty(); ++i)
    if (!s.calls[i].collective() && random.one_in(2)) {
      s.calls[i].from_anybody = true;
      s.calls[i].tag = static_cast<tag_t>(1000 + i);
    }
  static constexpr std::uint64_t hops[] = {5, 200, 5000, 30000};
  s.hop_ticks = hops[random.below(std::size(hops))];
  s.think_ticks = 1 + random.below(random.one_in(4) ? 300 : 15);
  return s;
}

std::string describe(const planned_fault& f) {
  static constexpr const char* names[] = {"deadline", "cancel", "drop", "mismatch",
                                          "death",    "freeze", "cut",  "leave"};
  std::string text{names[static_cast<std::size_t>(f.kind)]};
  text += " of rank " + std::to_string(f.rank) + " (other " + std::to_string(f.other) + "), call " +
          std::to_string(f.call) + ", ticks " + std::to_string(f.ticks);
  if (f.kind == fault_kind::mismatch) text += ", variant " + std::to_string(f.variant);
  if (f.silent) text += ", silent";
  if (f.one_witness) text += ", one witness";
  return text;
}

std::string describe(const scenario& s) {
  std::string text =
      "seed " + std::to_string(s.seed) + ", " + std::to_string(s.ranks) + " ranks, algorithm " +
      std::string{name_of(s.selection.forced_for(collective_kind::all_reduce))} + ", " +
      std::to_string(s.conditions.slots) + " slots, hops of " + std::to_string(s.hop_ticks) + "\n";
  for (std::size_t i = 0; i < s.calls.size(); ++i) {
    const planned_call& c = s.calls[i];
    text += "  call " + std::to_string(i) + " on lane " + std::to_string(c.lane) + ": " +
            std::string{name_of(c.kind)} + " of " + std::to_string(c.count);
    if (!c.collective())
      text += ", " + std::to_string(c.from) + " to " + std::to_string(c.to) + ", tag " +
              std::to_string(c.tag) + (c.from_anybody ? ", from anybody" : "");
    if (has_root(c.kind)) text += ", root " + std::to_string(c.from);
    text += "\n";
  }
  for (const planned_fault& f : s.faults) text += "  " + describe(f) + "\n";
  return text;
}

call call_of(const scenario& s, rank_t rank, std::size_t index) {
  const planned_call& planned = s.calls[index];
  call c;
  c.kind = planned.kind;
  c.count = planned.count;
  if (c.kind != collective_kind::barrier) c.type = dtype::f32;
  if (reduces(c.kind)) c.op = reduction::sum;
  if (c.kind == collective_kind::broadcast || c.kind == collective_kind::reduce) c.root = planned.from;
  if (c.kind == collective_kind::message) {
    c.sending = rank == planned.from;
    c.receiving = !c.sending;
    c.room = c.count;
    c.tag = c.receive_tag = planned.tag;
    (c.sending ? c.peer : c.source) = c.sending              ? planned.to
                                      : planned.from_anybody ? any_source
                                                             : planned.from;
  }
  for (const planned_fault& f : s.faults) {
    if (f.kind != fault_kind::mismatch || f.rank != rank || f.call != index) continue;
    if (c.kind == collective_kind::barrier) {
      c.kind = collective_kind::all_reduce;
      c.type = dtype::f32;
      c.op = reduction::sum;
      c.count = 1;
    } else if (f.variant == 0 && has_root(c.kind)) {
      c.root = (c.root + 1) % s.ranks;
    } else if (f.variant == 0 && reduces(c.kind)) {
      c.op = reduction::max;
    } else if (f.variant == 1 && c.kind != collective_kind::message) {
      c.kind = collective_kind::barrier;
      c.root = 0;
      c.type = dtype::none;
      c.op = reduction::none;
      c.count = 0;
    } else if (c.kind == collective_kind::message) {
      c.type = dtype::i32;
    } else {
      ++c.count;
    }
  }
  return c;
}

}  // namespace chorale::testing
