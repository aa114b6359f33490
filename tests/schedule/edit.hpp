// Breaks schedules by hand: an algorithm whose programs are those of another, changed step by step.
#pragma once

#include <chorale/schedule/schedule.hpp>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <vector>

namespace edit {

namespace cs = chorale::schedule;

struct loose_step {
  cs::step what;
  std::vector<cs::step_index> dependencies;
};

/// The steps of one rank, free to be changed, dropped, swapped and added to.
struct loose_program {
  std::vector<loose_step> steps;

  /// The first step of a kind, or the one after `skip` of them.
  cs::step_index find(cs::step_kind kind, std::size_t skip = 0) const {
    for (cs::step_index i = 0; i < steps.size(); ++i)
      if (steps[i].what.kind == kind && skip-- == 0) return i;
    throw std::logic_error{"the schedule has no such step"};
  }

  /// Whoever waited for the step now waits for what it waited for.
  void drop(cs::step_index at) {
    const std::vector<cs::step_index> inherited = steps[at].dependencies;
    steps.erase(steps.begin() + at);
    for (loose_step& s : steps) {
      if (std::erase(s.dependencies, at) > 0)
        s.dependencies.insert(s.dependencies.end(), inherited.begin(), inherited.end());
      for (cs::step_index& d : s.dependencies)
        if (d > at) --d;
    }
  }
};

/// `change` is called for every rank's program.
inline cs::algorithm changed(const cs::algorithm& base,
                             std::function<void(chorale::rank_t, loose_program&)> change) {
  return {base.name(), base.what(),
          [base, change = std::move(change)](chorale::rank_t rank) {
            const cs::rank_program original = base.program(rank);
            loose_program loose;
            for (const cs::step& s : original.steps()) {
              const auto d = original.dependencies(s);
              loose.steps.push_back({s, {d.begin(), d.end()}});
            }
            change(rank, loose);
            cs::rank_program made;
            for (const cs::scratch_shape& shape : original.scratch()) made.add_scratch(shape);
            for (const loose_step& s : loose.steps) made.add(s.what, std::span{s.dependencies});
            return made;
          },
          cs::placement_support::both, base.unit()};
}

}  // namespace edit
