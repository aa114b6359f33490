// What runs a call: the pools of executions, and which of them serves what.
#include <chorale/collective/core.hpp>
#include <chorale/collective/message_execution.hpp>
#include <chorale/collective/plan_execution.hpp>
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

}  // namespace chorale
