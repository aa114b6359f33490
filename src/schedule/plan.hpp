// A lowered schedule: the flat arrays an executor walks for one rank, without allocating and without asking
// anything else.
//
// A plan_step may start once `dependencies` steps that list it as a successor have finished, and its message
// is next on its edge: the k-th message of an edge is the one with sequence k on both sides. Steps are sorted
// so that every successor comes later. Steps of zero length do not exist: both ends of an edge know the
// length, so both leave the message out and number the rest alike. Edges without any message left are still
// listed, so that an executor can compare signatures with every peer the schedule names.
//
// Accumulators: lowered with `accumulator_bytes` above `element_bytes`, scratch that holds a running fold
// keeps accumulators ("wide": f32 for 16- and 8-bit floats); input, output, messages and all other scratch
// keep elements ("narrow"). Which kernel a step asks for follows from its kind and flags; only the left
// operand of a reduction is ever wide:
//   begin   narrow → wide           copy, recv: dst_wide
//   fold    wide ⊕ narrow → wide    reduce: dst_wide; recv_reduce: src_wide and dst_wide
//   finish  wide ⊕ narrow → narrow  recv_reduce, recv_reduce_send, recv_reduce_copy_send: src_wide alone
//   round   wide → narrow           copy: src_wide
// Without flags: plain, narrow throughout. Lowering refuses whatever is not in this list.
#pragma once

#include <chorale/schedule/schedule.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace chorale::schedule {

enum class direction : std::uint8_t { sending, receiving };

/// One direction to or from one peer on one channel; sequence numbers count from 0 on each.
struct plan_edge {
  rank_t peer = no_rank;
  channel_t channel = 0;
  direction way = direction::sending;
  std::uint32_t messages = 0;
  std::uint64_t bytes = 0;
};

inline constexpr std::uint32_t no_edge = ~std::uint32_t{0};

/// Offsets are bytes from the start of the user's input, the user's output or the plan's scratch. Element k
/// of a wide place lies at its offset + k · accumulator_bytes.
struct plan_step {
  step_kind kind = step_kind::copy;
  operand_order order = operand_order::local_first;
  space src_space = space::in;
  space dst_space = space::in;
  bool src_wide = false;              ///< src holds accumulators
  bool dst_wide = false;              ///< dst holds accumulators
  std::uint32_t send_edge = no_edge;  ///< index into plan::edges
  std::uint32_t recv_edge = no_edge;
  std::uint32_t send_sequence = 0;
  std::uint32_t recv_sequence = 0;
  std::uint32_t dependencies = 0;  ///< how many finished steps it waits for
  step_index origin = 0;           ///< the schedule's step, for messages and traces
  std::uint64_t src_offset = 0;
  std::uint64_t dst_offset = 0;
  std::uint64_t length = 0;  ///< bytes of narrow elements, also where a place is wide; never 0
};

struct plan {
  rank_t rank = 0;
  std::uint64_t element_bytes = 1;
  std::uint64_t accumulator_bytes = 1;  ///< element_bytes unless something is wide
  std::uint64_t scratch_bytes = 0;
  std::vector<plan_step> steps;
  std::vector<plan_edge> edges;
  std::vector<std::uint32_t> successor_begin;  ///< steps.size() + 1 entries
  std::vector<step_index> successor_list;

  /// The steps that wait for this one.
  [[nodiscard]] std::span<const step_index> successors(step_index s) const noexcept {
    return std::span{successor_list}.subspan(successor_begin[s], successor_begin[s + 1] - successor_begin[s]);
  }
};

}  // namespace chorale::schedule
