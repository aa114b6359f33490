// What runs a call: the pools of executions, and which of them serves what.
#include <chorale/collective/core.hpp>
#include <chorale/collective/message_execution.hpp>
#include <chorale/collective/plan_execution.hpp>
#include <chorale/collective/prepared_call.hpp>
#include <chorale/collective/tiny_exchange.hpp>

#include <utility>

namespace chorale {

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
in_flight& core::new_execution(group& among, const call& what, error& why_not) {
  if (what.kind == collective_kind::message) return new_message_execution();
  if (what.prepared) return execution_of(*what.prepared);
  if (const prepared_call* known = among.recent().find(what)) return execution_of(*known);
  auto found = prepare(among, what);
  if (found) return execution_of(among.recent().remember(what, *std::move(found)));
  why_not = std::move(found).error();
  return new_plan_execution();
}

result<prepared_call> core::prepare(group& among, const call& what) {
  prepared_call found;
  auto how = combining::find(what, among.size());
  if (!how) return std::move(how).error();
  found.how = *how;
  const algorithm_kind algorithm = choose(among.settings(), what, among.size());
  if (algorithm == algorithm_kind::tiny) return found;
  const plan_key key = plan_for(among, what, algorithm, *how);
  auto steps = among.plans().find(key);
  if (!steps) return std::move(steps).error();
  found.steps = *std::move(steps);
  found.wide = key.accumulator_bytes != key.element_bytes;
  return found;
}

in_flight& core::execution_of(const prepared_call& found) {
  if (!found.steps) {
    tiny_exchange& tiny = new_tiny_exchange();
    tiny.prepare(found.how);
    return tiny;
  }
  plan_execution& execution = new_plan_execution();
  execution.prepare(found.steps, found.how, found.wide);
  return execution;
}

plan_key core::plan_for(const group& among, const call& what, algorithm_kind algorithm,
                        const combining& how) {
  plan_key key;
  key.algorithm = algorithm;
  key.element_bytes = static_cast<std::uint8_t>(how.element_bytes());
  const bool wide = keeps_folds_wide(algorithm, what);
  key.accumulator_bytes = wide ? static_cast<std::uint8_t>(how.accumulator_bytes()) : key.element_bytes;
  if (what.carries_nothing()) {
    key.kind = collective_kind::all_reduce;
    key.count = 1;
    return key;
  }
  key.kind = what.kind;
  key.root = has_root(what.kind) ? what.root : 0;
  key.in_place = plan_execution::runs_in_place(what, among.rank(), among.size());
  key.count = what.kind == collective_kind::all_to_all ? what.count / static_cast<std::uint64_t>(among.size())
                                                       : what.count;
  key.counts = what.counts;
  return key;
}

}  // namespace chorale
