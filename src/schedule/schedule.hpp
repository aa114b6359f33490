// Schedules as data: what each rank sends, receives, copies and reduces, in which order.
//
// A `rank_program` lists the steps of one rank. A step may begin once every step it depends on has finished;
// dependencies point backwards, so the list is a topological order. Memory hazards inside a rank are ordered
// by dependencies alone. Messages of one edge (sender, receiver, channel) are sent and received in list order
// on both sides; nothing else is implied by position in the list.
//
// An `algorithm` is a collective's definition and a function that makes the program of one rank when asked,
// so that a thousand ranks never lie in memory at once. The function must be pure: any thread may call it.
#pragma once

#include <chorale/schedule/definition.hpp>

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::schedule {

/// "Arriving" is the received message; for `reduce`, which receives nothing, it is the block `src`.
enum class step_kind : std::uint8_t {
  send,                   ///< src → peer
  recv,                   ///< arriving → dst
  copy,                   ///< src → dst
  reduce,                 ///< dst ⊕ src → dst
  recv_reduce,            ///< src ⊕ arriving → dst
  recv_copy_send,         ///< arriving → dst, peer
  recv_reduce_send,       ///< src ⊕ arriving → peer; nothing is stored here
  recv_reduce_copy_send,  ///< src ⊕ arriving → dst, peer
};
[[nodiscard]] std::string_view name_of(step_kind kind) noexcept;

[[nodiscard]] constexpr bool sends(step_kind k) noexcept {
  return k == step_kind::send || k >= step_kind::recv_copy_send;
}
[[nodiscard]] constexpr bool receives(step_kind k) noexcept {
  return k == step_kind::recv || k >= step_kind::recv_reduce;
}
[[nodiscard]] constexpr bool reduces(step_kind k) noexcept {
  return k == step_kind::reduce || k == step_kind::recv_reduce || k >= step_kind::recv_reduce_send;
}
[[nodiscard]] constexpr bool reads_src(step_kind k) noexcept {
  return k != step_kind::recv && k != step_kind::recv_copy_send;
}
[[nodiscard]] constexpr bool writes_dst(step_kind k) noexcept {
  return k != step_kind::send && k != step_kind::recv_reduce_send;
}

/// Which operand of ⊕ stands on the left: the one already here (`dst` for reduce, else `src`), or the
/// arriving one. Generators put the side that holds the lowest rank on the left, whoever computes, so that
/// every rank evaluates one and the same expression.
enum class operand_order : std::uint8_t { local_first, arriving_first };

enum class space : std::uint8_t { in, out, scratch };
[[nodiscard]] std::string_view name_of(space where) noexcept;

/// `count` neighbouring blocks.
struct block_ref {
  space where = space::in;
  std::uint32_t block = 0;
  std::uint32_t count = 1;
  friend bool operator==(const block_ref&, const block_ref&) = default;
};

using channel_t = std::uint16_t;
using step_index = std::uint32_t;

struct step {
  step_kind kind = step_kind::copy;
  operand_order order = operand_order::local_first;
  channel_t channel = 0;
  rank_t send_to = no_rank;
  rank_t recv_from = no_rank;
  block_ref src{};
  block_ref dst{};
  std::uint32_t first_dependency = 0;  ///< set by rank_program::add
  std::uint32_t dependency_count = 0;  ///< set by rank_program::add

  /// Blocks moved: messages of both ends of an edge must agree on it.
  [[nodiscard]] std::uint32_t count() const noexcept { return reads_src(kind) ? src.count : dst.count; }
};

/// What a scratch block holds: values as they travel, or a running fold, which lowering may keep in a wider
/// type (see plan.hpp).
enum class scratch_content : std::uint8_t { values, running_fold };

/// A scratch block is as large as the in or out block it is shaped like, on the same rank. Shaped like
/// `scratch`: it serves blocks of different cuts in turn, and works only where all blocks are equally long.
struct scratch_shape {
  space like = space::out;
  std::uint32_t block = 0;
  scratch_content content = scratch_content::values;
};

class rank_program {
 public:
  step_index add(step s, std::span<const step_index> dependencies);
  step_index add(step s, std::initializer_list<step_index> dependencies = {}) {
    return add(s, std::span{dependencies.begin(), dependencies.size()});
  }
  /// One more scratch block; returns its number.
  std::uint32_t add_scratch(scratch_shape shape);
  void shape_scratch(std::uint32_t block, scratch_shape shape) { scratch_[block] = shape; }
  void reserve(std::size_t steps);

  [[nodiscard]] std::span<const step> steps() const noexcept { return steps_; }
  [[nodiscard]] std::span<const step_index> dependencies(const step& s) const noexcept {
    return std::span{dependencies_}.subspan(s.first_dependency, s.dependency_count);
  }
  [[nodiscard]] std::span<const scratch_shape> scratch() const noexcept { return scratch_; }

 private:
  std::vector<step> steps_;
  std::vector<step_index> dependencies_;
  std::vector<scratch_shape> scratch_;
};

/// In which forms of call an algorithm's memory accesses are sound.
enum class placement_support : std::uint8_t { both, out_of_place_only, in_place_only };

/// What a step moves. Only single blocks can be cut into pieces (see lowering.hpp): a step may wait for a
/// part of a run, and which pieces hold that part depends on all blocks before it.
enum class step_unit : std::uint8_t { block, run_of_blocks };

/// Which blocks may differ in length: what the v-forms ask for. Blocks at the same place in a unit always
/// have one length on all ranks where no unit is a share (all_reduce, reduce, broadcast, scan).
enum class share_lengths : std::uint8_t {
  each_end_knows,  ///< any: a rank's tables need only say what it sends, receives and keeps itself
  all_ranks_know,  ///< any, where the tables of ranks without that buffer list its lengths too (gather: out,
                   ///< scatter: in)
  equal,           ///< all shares are cut alike
};

class algorithm {
 public:
  using generator = std::function<rank_program(rank_t)>;
  algorithm(std::string name, definition what, generator make,
            placement_support support = placement_support::both, step_unit unit = step_unit::block,
            share_lengths lengths = share_lengths::equal)
      : name_{std::move(name)},
        what_{what},
        support_{support},
        unit_{unit},
        lengths_{lengths},
        make_{std::move(make)} {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const definition& what() const noexcept { return what_; }
  [[nodiscard]] bool allows(placement form) const noexcept {
    return support_ == placement_support::both ||
           (form == placement::in_place) == (support_ == placement_support::in_place_only);
  }
  /// Of run_of_blocks: block tables must leave no holes inside a run, and pieces must be 1.
  [[nodiscard]] step_unit unit() const noexcept { return unit_; }
  [[nodiscard]] share_lengths lengths() const noexcept { return lengths_; }
  /// Not for the v-forms.
  [[nodiscard]] bool equal_shares_only() const noexcept { return lengths_ == share_lengths::equal; }
  /// The steps of one rank, made anew. Precondition: 0 ≤ rank < what().ranks.
  [[nodiscard]] rank_program program(rank_t rank) const { return make_(rank); }

 private:
  std::string name_;
  definition what_;
  placement_support support_;
  step_unit unit_;
  share_lengths lengths_;
  generator make_;
};

/// "rank 3, step 17 (recv_reduce from 2 on channel 0)": how errors name a step.
[[nodiscard]] std::string describe(rank_t rank, step_index index, const step& s);
/// "scratch[4]" or "out[0..7]".
[[nodiscard]] std::string describe(const block_ref& ref);

}  // namespace chorale::schedule
