#include <chorale/schedule/binomial_tree.hpp>
#include <chorale/schedule/generator_arguments.hpp>
#include <chorale/schedule/generators.hpp>

#include <optional>
#include <ranges>

namespace chorale::schedule {
namespace {

constexpr block_ref input{space::in, 0, 1};
constexpr block_ref output{space::out, 0, 1};

/// The largest subtree is served first. A single child is served by a fused step; with more, no child waits
/// for the send to another.
rank_program broadcast_program(const binomial_tree& tree) {
  rank_program program;
  const auto children = tree.children();
  if (tree.is_root()) {
    for (const place_run& child : std::views::reverse(children))
      program.add({.kind = step_kind::send, .send_to = tree.rank_of(child.first), .src = input});
    program.add({.kind = step_kind::copy, .src = input, .dst = output});
  } else if (children.size() == 1) {
    program.add({.kind = step_kind::recv_copy_send,
                 .send_to = tree.rank_of(children[0].first),
                 .recv_from = tree.parent(),
                 .dst = output});
  } else {
    const auto got = program.add({.kind = step_kind::recv, .recv_from = tree.parent(), .dst = output});
    for (const place_run& child : std::views::reverse(children))
      program.add({.kind = step_kind::send, .send_to = tree.rank_of(child.first), .src = output}, {got});
  }
  return program;
}

/// Children are taken nearest first, so that the sum always covers a run of places. The root sums in its
/// output, others in scratch; the last child's sum goes straight on to the parent.
rank_program reduce_program(const binomial_tree& tree) {
  rank_program program;
  const auto children = tree.children();
  if (children.empty()) {
    if (tree.is_root())
      program.add({.kind = step_kind::copy, .src = input, .dst = output});
    else
      program.add({.kind = step_kind::send, .send_to = tree.parent(), .src = input});
    return program;
  }
  block_ref sum = output;
  if (!tree.is_root() && children.size() > 1) sum = {space::scratch, program.add_scratch({space::in, 0}), 1};
  block_ref partial = input;
  place_run covered{tree.subtree().first, tree.subtree().first + 1};
  std::vector<step_index> last;
  for (const place_run& child : children) {
    const bool passes_on = !tree.is_root() && child.first == children.back().first;
    step s{.kind = passes_on ? step_kind::recv_reduce_send : step_kind::recv_reduce,
           .order = tree.lowest(covered) < tree.lowest(child) ? operand_order::local_first
                                                              : operand_order::arriving_first,
           .send_to = passes_on ? tree.parent() : no_rank,
           .recv_from = tree.rank_of(child.first),
           .src = partial};
    if (!passes_on) s.dst = sum;
    last = {program.add(s, last)};
    partial = sum;
    covered.last = child.last;
  }
  return program;
}

}  // namespace

result<algorithm> binomial_broadcast(rank_t ranks, rank_t root) {
  if (auto refused = out_of_range("binomial broadcast", ranks, root)) return *refused;
  return algorithm{"binomial tree",
                   definition{.what = collective::broadcast, .ranks = ranks, .root = root},
                   [=](rank_t rank) { return broadcast_program({ranks, root, rank}); },
                   placement_support::both,
                   step_unit::block,
                   share_lengths::each_end_knows};
}

result<algorithm> binomial_reduce(rank_t ranks, rank_t root) {
  if (auto refused = out_of_range("binomial reduce", ranks, root)) return *refused;
  return algorithm{"binomial tree",
                   definition{.what = collective::reduce, .ranks = ranks, .root = root},
                   [=](rank_t rank) { return reduce_program({ranks, root, rank}); },
                   placement_support::both,
                   step_unit::block,
                   share_lengths::each_end_knows};
}

}  // namespace chorale::schedule
