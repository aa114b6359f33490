// Judges a schedule before it runs, knowing nothing but the collective's definition.
//
// A schedule that passes, for the given number of ranks and form of call:
//   - names only blocks, ranks and earlier steps that exist, and leaves the caller's input alone;
//   - pairs every send with one receive of the same size, in order, on every edge;
//   - cannot deadlock when each edge holds `slots` undelivered messages and a fused step needs its message
//     and a free slot at the same time (Kahn networks: one order completes, or none does);
//   - never reads a block before it is defined, nor writes one that an unordered step touches;
//   - puts into every output block exactly the contributions the definition asks for, each once;
//   - moves each block only between places of its size, so that both ends of an edge know a message's length;
//   - gives all ranks the same expression (operands in the same order), or the left fold where asked.
// Otherwise the error (errc::invalid_argument, culprit: the rank) names rank, step and reason.
//
// Contributions are exact sets up to `exact_up_to` ranks; beyond, sums of random 61-bit numbers modulo a
// prime, whose chance to hide a fault is below 2^-60 per block. Pure and thread-safe; takes memory for the
// programs of all ranks at once (about 100 bytes per step) and time linear in steps, but for memory order,
// which may cost steps² / 64 word operations per rank where no direct dependency settles it.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/schedule/schedule.hpp>

#include <cstdint>
#include <string_view>

namespace chorale::schedule {

/// How much is known about the expression each output block was computed by, weakest first.
enum class expression : std::uint8_t {
  any,              ///< ranks may evaluate different trees of the same operands
  same_everywhere,  ///< all ranks hold the value of one tree, operands in one order
  left_fold,        ///< that tree is ((x0 ⊕ x1) ⊕ x2) ⊕ …
};
[[nodiscard]] std::string_view name_of(expression e) noexcept;

/// What orders two accesses to one block.
enum class memory_ordering : std::uint8_t {
  by_dependencies,   ///< dependencies inside the rank only: what chorale's executor promises
  through_messages,  ///< also "sent before received", across ranks: what GPU schedules may lean on
};

struct check_options {
  placement form = placement::out_of_place;
  std::uint32_t slots = 2;
  expression required = expression::same_everywhere;
  memory_ordering ordering = memory_ordering::by_dependencies;
  rank_t exact_up_to = 256;
  std::uint64_t seed = 0x63686f72616c65;  ///< of the random contributions
};

struct check_report {
  std::uint64_t steps = 0;
  std::uint64_t messages = 0;
  std::uint64_t edges = 0;
  std::uint32_t most_scratch_blocks = 0;  ///< at any rank
  expression found = expression::any;
};

[[nodiscard]] result<check_report> check(const algorithm& schedule, const check_options& options = {});

}  // namespace chorale::schedule
