#include "simulated_run.hpp"

#include <algorithm>

namespace chorale::testing {
namespace {

/// How long communicators hold a broken link back, in case the guard knows the cause.
constexpr duration link_grace = std::chrono::milliseconds{100};

}  // namespace

void simulated_run::complain(rank_t me, std::size_t index, const std::string& what) {
  if (hung_ || judgement_.complaints.size() > 10) return;
  judgement_.complaints.push_back("rank " + std::to_string(me) + ", call " + std::to_string(index) + ": " +
                                  what);
}

void simulated_run::judge(rank_t me, std::size_t index, const result<void>& outcome) {
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

void simulated_run::judge_success(rank_t me, std::size_t index) {
  const planned_call& c = script_.calls[index];
  // Who sends only may be through before anybody can tell it that it means another call.
  if (fault_at(me, index, fault_kind::mismatch) && !c.meets()) return;
  if (c.collective() && c.meets() && callers_[index] != script_.ranks)
    complain(me, index,
             "it succeeded although only " + std::to_string(callers_[index]) + " ranks had called it");
  auto& got = state(me, index).result();
  if (c.kind == collective_kind::message && me == c.to) {
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] != static_cast<float>(value_of(c.from, index, i)))
        return complain(me, index, "element " + std::to_string(i) + " is " + std::to_string(got[i]));
    return;
  }
  const bool has_result = c.kind != collective_kind::barrier && c.kind != collective_kind::message &&
                          (c.kind != collective_kind::reduce || me == c.from);
  if (!has_result) return;
  const bool broadcasts = c.kind == collective_kind::broadcast;
  const rank_t first = broadcasts ? c.from : 0;
  const rank_t last = broadcasts ? first + 1 : c.kind == collective_kind::scan ? me + 1 : script_.ranks;
  float expected[64] = {};
  for (std::size_t i = 0; i < 64; ++i)
    for (rank_t r = first; r < last; ++r) expected[i] += static_cast<float>(value_of(r, index, i));
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != expected[i % 64])
      return complain(me, index,
                      "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
                          std::to_string(expected[i % 64]));
}

bool simulated_run::lane_fault_explains(const planned_fault& f, rank_t me, std::size_t index,
                                        const error& why) {
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

bool simulated_run::explains(const planned_fault& f, rank_t me, std::size_t index, const error& why) {
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

void simulated_run::judge_leftovers() {
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

}  // namespace chorale::testing
