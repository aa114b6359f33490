#include <chorale/schedule/checker.hpp>
#include <chorale/schedule/contributions.hpp>
#include <chorale/schedule/firing_order.hpp>
#include <chorale/schedule/memory_order.hpp>
#include <chorale/schedule/program_set.hpp>

#include <algorithm>

namespace chorale::schedule {

std::string_view name_of(expression e) noexcept {
  switch (e) {
    case expression::any:
      return "any";
    case expression::same_everywhere:
      return "same everywhere";
    case expression::left_fold:
      return "left fold";
  }
  return "unknown expression";
}

result<check_report> check(const algorithm& schedule, const check_options& options) {
  if (options.slots == 0)
    return error{errc::invalid_argument, schedule.name() + ": an edge needs at least one slot"};
  if (!schedule.allows(options.form))
    return error{errc::invalid_argument,
                 schedule.name() + ": does not claim to be sound " +
                     (options.form == placement::in_place ? "in place" : "out of place") +
                     ": check the other form"};
  const auto set = program_set::load(schedule, options.form);
  if (!set) return set.error();
  const auto order = firing_order(*set, options.slots);
  if (!order) return order.error();
  const auto ordered = options.ordering == memory_ordering::by_dependencies
                           ? ordered_by_dependencies(*set)
                           : ordered_through_messages(*set, *order);
  if (!ordered) return ordered.error();
  const auto found = check_contributions(*set, schedule.what(), *order, options);
  if (!found) return found.error();

  check_report report{
      .steps = set->step_count(), .messages = set->messages().size(), .edges = set->edges(), .found = *found};
  for (rank_t r = 0; r < set->ranks(); ++r)
    report.most_scratch_blocks =
        std::max(report.most_scratch_blocks, static_cast<std::uint32_t>(set->program(r).scratch().size()));
  return report;
}

}  // namespace chorale::schedule
