// Scans in log n rounds: in the round of distance d every rank sends what it has to the rank d above, which
// puts it before its own. After it, a rank's sum covers up to 2d ranks. The exclusive form first hands every
// input one rank up, then does the same among ranks 1 … n − 1.

#include <chorale/schedule/generator_arguments.hpp>
#include <chorale/schedule/generators.hpp>

#include <bit>
#include <optional>
#include <vector>

namespace chorale::schedule {
namespace {

/// The sum alternates between out and one scratch vector, so that it can be reduced while it is still being
/// sent. `writes` says how often it will move, and so where it must begin to end in out.
class moving_sum {
 public:
  moving_sum(rank_program& program, unsigned writes) : program_{program}, left_{writes} {
    if (writes > 1) program_.add_scratch({space::out, 0});
  }

  void send(rank_t peer) {
    const auto sent = program_.add({.kind = step_kind::send, .send_to = peer, .src = sum_}, made_);
    reader_of(sum_.where) = sent;
  }
  /// The first sum of an exclusive scan.
  void receive(rank_t peer) { write({.kind = step_kind::recv, .recv_from = peer}); }
  void receive_onto(rank_t peer) {
    write({.kind = step_kind::recv_reduce,
           .order = operand_order::arriving_first,
           .recv_from = peer,
           .src = sum_});
  }
  void copy_to_out() { program_.add({.kind = step_kind::copy, .src = sum_, .dst = {space::out, 0, 1}}); }

 private:
  std::optional<step_index>& reader_of(space where) { return readers_[static_cast<std::size_t>(where)]; }

  void write(step s) {
    --left_;
    s.dst = {left_ % 2 == 0 ? space::out : space::scratch, 0, 1};
    std::vector<step_index> after = made_;
    const auto wait_for = [&](space where) {
      if (const auto reader = reader_of(where)) after.push_back(*reader);
    };
    wait_for(s.dst.where);
    if (s.dst.where == space::out) wait_for(space::in);  // in place they are one
    made_ = {program_.add(s, after)};
    sum_ = s.dst;
  }

  rank_program& program_;
  unsigned left_;
  block_ref sum_{space::in, 0, 1};
  std::vector<step_index> made_;          ///< the step that wrote the sum, if any
  std::optional<step_index> readers_[3];  ///< the last send from each space
};

/// Rounds of distance 1, 2, 4 … among ranks `lowest` and above.
void double_up(moving_sum& sum, rank_t rank, rank_t lowest, rank_t ranks) {
  for (rank_t distance = 1; distance < ranks; distance *= 2) {
    if (rank + distance < ranks) sum.send(rank + distance);
    if (rank - distance >= lowest) sum.receive_onto(rank - distance);
  }
}

/// How many distances 1, 2, 4 … reach `lowest` or above.
unsigned receives_of(rank_t rank, rank_t lowest) {
  return static_cast<unsigned>(std::bit_width(static_cast<std::uint32_t>(rank - lowest)));
}

rank_program scan_program(rank_t rank, rank_t ranks) {
  rank_program program;
  moving_sum sum{program, receives_of(rank, 0)};
  if (rank == 0) sum.copy_to_out();
  double_up(sum, rank, 0, ranks);
  return program;
}

rank_program exscan_program(rank_t rank, rank_t ranks) {
  rank_program program;
  moving_sum sum{program, rank == 0 ? 0 : 1 + receives_of(rank, 1)};
  if (rank + 1 < ranks) sum.send(rank + 1);
  if (rank == 0) return program;
  sum.receive(rank - 1);
  double_up(sum, rank, 1, ranks);
  return program;
}

}  // namespace

result<algorithm> recursive_doubling_scan(rank_t ranks) {
  if (auto refused = out_of_range("recursive doubling scan", ranks)) return *refused;
  return algorithm{"recursive doubling",
                   definition{.what = collective::scan, .ranks = ranks},
                   [=](rank_t rank) { return scan_program(rank, ranks); },
                   placement_support::both,
                   step_unit::block,
                   share_lengths::each_end_knows};
}

result<algorithm> recursive_doubling_exscan(rank_t ranks) {
  if (auto refused = out_of_range("recursive doubling exscan", ranks)) return *refused;
  return algorithm{"recursive doubling",
                   definition{.what = collective::exscan, .ranks = ranks},
                   [=](rank_t rank) { return exscan_program(rank, ranks); },
                   placement_support::both,
                   step_unit::block,
                   share_lengths::each_end_knows};
}

}  // namespace chorale::schedule
