// What can be refused without a peer: ranks, ranges, counters, types.
#include <chorale/collective/window_side.hpp>

namespace chorale {
namespace {

constexpr std::string_view names[] = {"put", "accumulate", "get", "signal", "wait"};

std::string_view name_of(window_action action) noexcept { return names[static_cast<std::size_t>(action)]; }

error refuse(const window_request& what, std::string why, errc code = errc::invalid_argument) {
  return error{code, std::string{name_of(what.action)} + ": " + std::move(why)};
}

}  // namespace

std::string describe(const window_request& what) {
  std::string text{name_of(what.action)};
  switch (what.action) {
    case window_action::wait:
      return text + " for counter " + std::to_string(what.slot) + " to reach " + std::to_string(what.amount);
    case window_action::signal:
      return text + " of " + std::to_string(what.amount) + " to counter " + std::to_string(what.slot) +
             " of rank " + std::to_string(what.peer);
    default:
      return text + " of " + std::to_string(what.bytes) + " bytes at " + std::to_string(what.offset) +
             " of rank " + std::to_string(what.peer);
  }
}

error window_side::check(const window_request& what, host_reduction& combine) const {
  if (what.action == window_action::wait) return check_slot(what, rank_);
  if (what.peer < 0 || what.peer >= among_.size())
    return refuse(what, "rank " + std::to_string(what.peer) + " does not exist; the window has ranks 0 to " +
                            std::to_string(among_.size() - 1));
  if (what.action == window_action::signal) return check_slot(what, what.peer);
  if (what.bytes != 0 && !what.from && !what.into)
    return refuse(what, "the buffer is null and has " + std::to_string(what.bytes) + " bytes");
  if (error why = check_range(what)) return why;
  if (what.action != window_action::accumulate) return {};
  if (what.op == reduction::avg || what.op == reduction::premul_sum)
    return refuse(what, std::string{chorale::name_of(what.op)} + " needs to know how many take part; use sum",
                  errc::unsupported);
  auto found = find_host_reduction(what.type, what.op);
  if (!found) return refuse(what, found.error().detail(), found.error().code());
  combine = *found;
  if (what.offset % size_of(what.type) != 0)
    return refuse(what, "offset " + std::to_string(what.offset) + " is no multiple of the " +
                            std::to_string(size_of(what.type)) + " bytes of an element");
  return {};
}

error window_side::check_range(const window_request& what) const {
  const std::uint64_t whole = part(what.peer).bytes;
  if (what.offset <= whole && what.bytes <= whole - what.offset) return {};
  return refuse(what, std::to_string(what.bytes) + " bytes at " + std::to_string(what.offset) +
                          " reach beyond the " + std::to_string(whole) + " bytes of rank " +
                          std::to_string(what.peer));
}

error window_side::check_slot(const window_request& what, rank_t whose) const {
  const std::uint32_t signals = part(whose).signals;
  if (what.slot < signals) return {};
  return refuse(what, "counter " + std::to_string(what.slot) + " does not exist; rank " +
                          std::to_string(whose) + " has " + std::to_string(signals) +
                          " (window_options::signals)");
}

}  // namespace chorale
