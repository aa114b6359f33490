#include <chorale/schedule/schedule.hpp>

namespace chorale::schedule {

std::string_view name_of(step_kind kind) noexcept {
  switch (kind) {
    case step_kind::send:
      return "send";
    case step_kind::recv:
      return "recv";
    case step_kind::copy:
      return "copy";
    case step_kind::reduce:
      return "reduce";
    case step_kind::recv_reduce:
      return "recv_reduce";
    case step_kind::recv_copy_send:
      return "recv_copy_send";
    case step_kind::recv_reduce_send:
      return "recv_reduce_send";
    case step_kind::recv_reduce_copy_send:
      return "recv_reduce_copy_send";
  }
  return "unknown step";
}

std::string_view name_of(space where) noexcept {
  switch (where) {
    case space::in:
      return "in";
    case space::out:
      return "out";
    case space::scratch:
      return "scratch";
  }
  return "unknown space";
}

step_index rank_program::add(step s, std::span<const step_index> dependencies) {
  s.first_dependency = static_cast<std::uint32_t>(dependencies_.size());
  s.dependency_count = static_cast<std::uint32_t>(dependencies.size());
  dependencies_.insert(dependencies_.end(), dependencies.begin(), dependencies.end());
  steps_.push_back(s);
  return static_cast<step_index>(steps_.size() - 1);
}

std::uint32_t rank_program::add_scratch(scratch_shape shape) {
  scratch_.push_back(shape);
  return static_cast<std::uint32_t>(scratch_.size() - 1);
}

void rank_program::reserve(std::size_t steps) {
  steps_.reserve(steps);
  dependencies_.reserve(steps);
}

std::string describe(rank_t rank, step_index index, const step& s) {
  std::string text = "rank " + std::to_string(rank) + ", step " + std::to_string(index) + " (";
  text += name_of(s.kind);
  if (receives(s.kind)) text += " from " + std::to_string(s.recv_from);
  if (sends(s.kind)) text += " to " + std::to_string(s.send_to);
  if (sends(s.kind) || receives(s.kind)) text += " on channel " + std::to_string(s.channel);
  return text + ")";
}

std::string describe(const block_ref& ref) {
  std::string text{name_of(ref.where)};
  text += '[' + std::to_string(ref.block);
  if (ref.count != 1) text += ".." + std::to_string(std::uint64_t{ref.block} + ref.count - 1);
  return text + ']';
}

}  // namespace chorale::schedule
