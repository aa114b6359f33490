#include <chorale/schedule/firing_order.hpp>

#include <algorithm>
#include <string>

namespace chorale::schedule {
namespace {

class waits_for {
 public:
  waits_for(const program_set& set, std::uint32_t slots) : set_{set}, slots_{slots} {}

  /// Calls visit(step, reason) for everything `s` waits for.
  template <class Visit>
  void each_before(global_step s, Visit visit) const {
    const rank_t rank = set_.rank_of(s);
    for (const step_index d : set_.program(rank).dependencies(set_.at(s)))
      visit(set_.first_step(rank) + d, "its dependency");
    const auto messages = set_.messages();
    if (const message_index m = set_.sent_by(s); m != no_message) {
      if (messages[m].number_on_edge > 0) visit(messages[m - 1].sender, "the send before it on the edge");
      if (messages[m].number_on_edge >= slots_) visit(messages[m - slots_].receiver, "a free slot, from");
    }
    if (const message_index m = set_.received_by(s); m != no_message) {
      if (messages[m].number_on_edge > 0)
        visit(messages[m - 1].receiver, "the receive before it on the edge");
      visit(messages[m].sender, "its message, from");
    }
  }

  /// Calls visit(step) for everything that waits for `s` because of messages.
  template <class Visit>
  void each_after_by_message(global_step s, Visit visit) const {
    const auto messages = set_.messages();
    if (const message_index m = set_.sent_by(s); m != no_message) {
      visit(messages[m].receiver);
      if (messages[m].left_on_edge > 0) visit(messages[m + 1].sender);
    }
    if (const message_index m = set_.received_by(s); m != no_message) {
      if (messages[m].left_on_edge > 0) visit(messages[m + 1].receiver);
      if (messages[m].left_on_edge >= slots_) visit(messages[m + slots_].sender);
    }
  }

 private:
  const program_set& set_;
  std::uint32_t slots_;
};

/// Who depends on whom, turned around, for all ranks.
struct dependents {
  std::vector<std::size_t> begin;
  std::vector<global_step> list;

  explicit dependents(const program_set& set) : begin(std::size_t{set.step_count()} + 1, 0) {
    const auto each = [&](auto visit) {
      for (global_step s = 0; s < set.step_count(); ++s) {
        const rank_t rank = set.rank_of(s);
        for (const step_index d : set.program(rank).dependencies(set.at(s)))
          visit(set.first_step(rank) + d, s);
      }
    };
    each([&](global_step before, global_step) { ++begin[std::size_t{before} + 1]; });
    for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
    list.resize(begin.back());
    std::vector<std::size_t> next(begin.begin(), begin.end() - 1);
    each([&](global_step before, global_step after) { list[next[before]++] = after; });
  }
};

/// Follows unfinished steps until one repeats, and tells the cycle.
error deadlock(const program_set& set, const waits_for& waits, const std::vector<bool>& fired,
               global_step start, std::uint32_t slots) {
  constexpr std::size_t told = 8;
  std::vector<std::pair<global_step, const char*>> trail;
  std::vector<std::uint32_t> seen_at(set.step_count(), ~0U);
  global_step at = start;
  while (seen_at[at] == ~0U) {
    seen_at[at] = static_cast<std::uint32_t>(trail.size());
    std::pair<global_step, const char*> blocker{at, ""};
    waits.each_before(at, [&](global_step before, const char* reason) {
      if (!fired[before]) blocker = {before, reason};
    });
    trail.push_back({at, blocker.second});
    at = blocker.first;
  }
  std::string text = "never runs, with " + std::to_string(slots) + " message(s) per edge: it waits for ";
  const std::size_t first = seen_at[at];
  for (std::size_t i = first; i < trail.size() && i < first + told; ++i) {
    const bool last = i + 1 == trail.size();
    text += std::string{trail[i].second} + " " + set.name_of_step(last ? at : trail[i + 1].first);
    if (!last) text += i + 1 == first + told ? ", and so on around" : ", which waits for ";
  }
  return set.fault(at, text);
}

}  // namespace

result<std::vector<global_step>> firing_order(const program_set& set, std::uint32_t slots) {
  const waits_for waits{set, slots};
  const dependents after{set};
  std::vector<std::uint32_t> missing(set.step_count(), 0);
  std::vector<global_step> order;
  order.reserve(set.step_count());
  for (global_step s = 0; s < set.step_count(); ++s) {
    waits.each_before(s, [&](global_step, const char*) { ++missing[s]; });
    if (missing[s] == 0) order.push_back(s);
  }
  for (std::size_t next = 0; next < order.size(); ++next) {
    const auto finished = [&](global_step s) {
      if (--missing[s] == 0) order.push_back(s);
    };
    const global_step s = order[next];
    for (std::size_t i = after.begin[s]; i < after.begin[std::size_t{s} + 1]; ++i) finished(after.list[i]);
    waits.each_after_by_message(s, finished);
  }
  if (order.size() == set.step_count()) return order;

  std::vector<bool> fired(set.step_count(), false);
  for (const global_step s : order) fired[s] = true;
  const auto stuck = std::find(fired.begin(), fired.end(), false) - fired.begin();
  return deadlock(set, waits, fired, static_cast<global_step>(stuck), slots);
}

}  // namespace chorale::schedule
