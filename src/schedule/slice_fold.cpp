#include <chorale/schedule/slice_fold.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace chorale::schedule {
namespace {

struct made_block {
  block_ref where;
  step_index by = 0;
};

block_ref new_scratch(rank_program& program, const slice_fold& what, scratch_content content) {
  return {space::scratch, program.add_scratch({what.own.where, what.own.block, content}), 1};
}

/// Takes every peer's part off the wire as it comes, the nearest rank below first.
std::vector<made_block> stage(rank_program& program, const slice_fold& what) {
  std::vector<made_block> part(static_cast<std::size_t>(what.ranks));
  const rank_t round = std::max(what.ranks, what.rank + 1);
  for (rank_t distance = 1; distance < round; ++distance) {
    const rank_t peer = (what.rank + round - distance) % round;
    const block_ref place = new_scratch(program, what, scratch_content::values);
    const auto got = program.add({.kind = step_kind::recv, .recv_from = peer, .dst = place});
    part[static_cast<std::size_t>(peer)] = {place, got};
  }
  return part;
}

class in_output {
 public:
  in_output(rank_program& program, const slice_fold& what) : program_{program}, what_{what} {
    last_ = program.add({.kind = step_kind::copy, .src = what.own, .dst = *what.result});
  }

  step_index staged() {
    const auto part = stage(program_, what_);
    std::optional<made_block> lower;
    for (rank_t peer = 0; peer < what_.ranks; ++peer) {
      if (peer == what_.rank) {
        if (lower) take_lower(*lower);
        continue;
      }
      const auto [place, got] = part[static_cast<std::size_t>(peer)];
      if (peer < what_.rank && !lower)
        lower = {place, got};
      else if (peer < what_.rank)
        lower->by = reduce(place, got, lower->where, lower->by, operand_order::local_first);
      else
        last_ = reduce(place, got, *what_.result, last_, operand_order::local_first);
    }
    return last_;
  }

  step_index streamed() {
    if (what_.rank == 1) {
      last_ = receive_onto(0, *what_.result, last_, operand_order::arriving_first);
    } else if (what_.rank > 1) {
      const block_ref place = new_scratch(program_, what_, scratch_content::values);
      auto got = program_.add({.kind = step_kind::recv, .recv_from = 0, .dst = place});
      for (rank_t peer = 1; peer < what_.rank; ++peer)
        got = receive_onto(peer, place, got, operand_order::local_first);
      take_lower({place, got});
    }
    for (rank_t peer = what_.rank + 1; peer < what_.ranks; ++peer)
      last_ = receive_onto(peer, *what_.result, last_, operand_order::local_first);
    return last_;
  }

 private:
  step_index reduce(block_ref src, step_index src_ready, block_ref dst, step_index dst_ready,
                    operand_order order) {
    return program_.add({.kind = step_kind::reduce, .order = order, .src = src, .dst = dst},
                        {src_ready, dst_ready});
  }
  step_index receive_onto(rank_t peer, block_ref place, step_index ready, operand_order order) {
    return program_.add(
        {.kind = step_kind::recv_reduce, .order = order, .recv_from = peer, .src = place, .dst = place},
        {ready});
  }
  void take_lower(const made_block& lower) {
    last_ = reduce(lower.where, lower.by, *what_.result, last_, operand_order::arriving_first);
  }

  rank_program& program_;
  const slice_fold& what_;
  step_index last_ = 0;
};

class in_accumulators {
 public:
  in_accumulators(rank_program& program, const slice_fold& what) : program_{program}, what_{what} {}

  step_index add() {
    const bool mine_too = what_.rank < what_.ranks;
    if (what_.ranks == 1) return only_part(mine_too);
    if (what_.ranks == 2 && mine_too) return one_operation();
    std::vector<made_block> part;
    if (what_.style == fold_style::staged) part = stage(program_, what_);
    sum_ = new_scratch(program_, what_, scratch_content::running_fold);
    for (rank_t rank = 0; rank < what_.ranks; ++rank) {
      if (rank == what_.rank)
        take(what_.own, std::nullopt);
      else if (part.empty())
        receive(rank);
      else
        take(part[static_cast<std::size_t>(rank)].where, part[static_cast<std::size_t>(rank)].by);
    }
    // The last part may have been received straight into the result.
    return rounded_ ? *last_ : round();
  }

 private:
  [[nodiscard]] step_kind last_kind() const {
    if (what_.send_to == no_rank) return step_kind::recv_reduce;
    return what_.result ? step_kind::recv_reduce_copy_send : step_kind::recv_reduce_send;
  }
  /// What must be over before a step that waits for `ready` may write the result.
  [[nodiscard]] std::vector<step_index> before_result(std::optional<step_index> ready) const {
    std::vector<step_index> after = what_.result_after;
    if (ready) after.push_back(*ready);
    return after;
  }
  step_index only_part(bool mine) {
    step s{.kind = mine ? step_kind::copy : step_kind::recv, .src = what_.own, .dst = *what_.result};
    if (!mine) s.recv_from = 0;
    return program_.add(s, before_result(std::nullopt));
  }
  step_index receive_last(rank_t peer, block_ref local, operand_order order,
                          std::optional<step_index> ready) {
    step s{.kind = last_kind(), .order = order, .send_to = what_.send_to, .recv_from = peer, .src = local};
    if (what_.result) s.dst = *what_.result;
    return program_.add(s, before_result(ready));
  }

  step_index one_operation() {
    return receive_last(1 - what_.rank, what_.own,
                        what_.rank == 0 ? operand_order::local_first : operand_order::arriving_first,
                        std::nullopt);
  }

  /// A part that lies in memory.
  void take(block_ref part, std::optional<step_index> ready) {
    std::vector<step_index> after;
    if (ready) after.push_back(*ready);
    if (last_) after.push_back(*last_);
    last_ =
        program_.add({.kind = last_ ? step_kind::reduce : step_kind::copy, .src = part, .dst = sum_}, after);
  }

  void receive(rank_t peer) {
    if (!last_) {
      last_ = program_.add({.kind = step_kind::recv, .recv_from = peer, .dst = sum_});
    } else if (peer + 1 == what_.ranks) {
      last_ = receive_last(peer, sum_, operand_order::local_first, last_);
      rounded_ = true;
    } else {
      last_ = program_.add({.kind = step_kind::recv_reduce, .recv_from = peer, .src = sum_, .dst = sum_},
                           {*last_});
    }
  }

  step_index round() {
    const block_ref to = what_.result ? *what_.result : new_scratch(program_, what_, scratch_content::values);
    const auto rounded =
        program_.add({.kind = step_kind::copy, .src = sum_, .dst = to}, before_result(last_));
    if (what_.send_to == no_rank) return rounded;
    return program_.add({.kind = step_kind::send, .send_to = what_.send_to, .src = to}, {rounded});
  }

  rank_program& program_;
  const slice_fold& what_;
  block_ref sum_;
  std::optional<step_index> last_;
  bool rounded_ = false;
};

}  // namespace

step_index add_fold(rank_program& program, const slice_fold& what) {
  if (what.sums == partial_sums::in_accumulators) return in_accumulators{program, what}.add();
  in_output fold{program, what};
  return what.style == fold_style::staged ? fold.staged() : fold.streamed();
}

}  // namespace chorale::schedule
