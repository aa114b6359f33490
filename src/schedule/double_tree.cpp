// Two binary trees over the same ranks, each for one half of the vector, in which every rank has children in
// at most one: all ranks send and receive about as much as they own, at logarithmic depth.
//
// Positions 1 … m form an in-order tree whose inner nodes are even. The first tree uses the ranks' labels as
// positions; the second mirrors them (m even) or turns them by one (m odd), which puts odd labels on even
// positions. Rooted collectives leave the root outside both trees, on top of them.

#include <chorale/schedule/generator_arguments.hpp>
#include <chorale/schedule/generators.hpp>

#include <algorithm>
#include <bit>
#include <vector>

namespace chorale::schedule {
namespace {

constexpr std::uint32_t trees = 2;

struct child_of_mine {
  rank_t rank = 0;
  rank_t lowest = 0;  ///< rank in the child's subtree
};

struct tree_place {
  rank_t parent = no_rank;              ///< no_rank: the top
  std::vector<child_of_mine> children;  ///< lowest first
};

/// Ranks as labels 1 … m, counted from `origin` upwards and around.
class labelled_ranks {
 public:
  labelled_ranks(rank_t labels, rank_t origin, rank_t ranks)
      : labels_{labels}, origin_{origin}, ranks_{ranks} {}

  [[nodiscard]] rank_t top(std::uint32_t tree) const { return rank_at(tree, middle(1, labels_)); }

  [[nodiscard]] tree_place find(std::uint32_t tree, rank_t rank) const {
    const rank_t wanted = position((rank - origin_ + ranks_) % ranks_ + 1, tree);
    rank_t first = 1;
    rank_t last = labels_;
    tree_place found;
    for (;;) {
      const rank_t here = middle(first, last);
      if (here == wanted) break;
      found.parent = rank_at(tree, here);
      (wanted < here ? last : first) = wanted < here ? here - 1 : here + 1;
    }
    add_child(found, tree, first, wanted - 1);
    add_child(found, tree, wanted + 1, last);
    std::sort(found.children.begin(), found.children.end(),
              [](const child_of_mine& a, const child_of_mine& b) { return a.lowest < b.lowest; });
    return found;
  }

 private:
  /// The top of the tree over positions first … last: all below it on the left is a full tree.
  [[nodiscard]] static rank_t middle(rank_t first, rank_t last) {
    return first - 1 + static_cast<rank_t>(std::bit_floor(static_cast<std::uint32_t>(last - first + 1)));
  }
  [[nodiscard]] rank_t position(rank_t label, std::uint32_t tree) const {
    if (tree == 0) return label;
    return labels_ % 2 == 0 ? labels_ + 1 - label : label % labels_ + 1;
  }
  [[nodiscard]] rank_t rank_at(std::uint32_t tree, rank_t position) const {
    rank_t label = position;
    if (tree == 1 && labels_ % 2 == 0) label = labels_ + 1 - position;
    if (tree == 1 && labels_ % 2 == 1) label = position == 1 ? labels_ : position - 1;
    return (origin_ + label - 1) % ranks_;
  }
  void add_child(tree_place& parent, std::uint32_t tree, rank_t first, rank_t last) const {
    if (first > last) return;
    rank_t lowest = rank_at(tree, first);
    for (rank_t p = first; p <= last; ++p) lowest = std::min(lowest, rank_at(tree, p));
    parent.children.push_back({rank_at(tree, middle(first, last)), lowest});
  }

  rank_t labels_;
  rank_t origin_;
  rank_t ranks_;
};

/// Adds one tree's steps to the program of `rank`.
class tree_steps {
 public:
  tree_steps(rank_program& program, std::uint32_t tree, rank_t rank, tree_place place)
      : program_{program},
        rank_{rank},
        place_{std::move(place)},
        channel_{static_cast<channel_t>(tree)},
        in_{space::in, tree, 1},
        out_{space::out, tree, 1} {}

  /// Takes the children's sums. The last one is joined on its way to `to`, or into the output (no_rank), from
  /// where it is also sent back at once if the child is the only one and `echo` says so. Partial sums wait in
  /// `waiting`, which must not be the input.
  void up(rank_t to, block_ref waiting, bool echo) {
    if (place_.children.empty()) {
      last_ = program_.add({.kind = step_kind::send, .channel = channel_, .send_to = to, .src = in_});
      return;
    }
    block_ref partial = in_;
    rank_t lowest = rank_;
    std::vector<step_index> after;
    for (const child_of_mine& child : place_.children) {
      step s{.kind = step_kind::recv_reduce,
             .order = lowest < child.lowest ? operand_order::local_first : operand_order::arriving_first,
             .channel = channel_,
             .recv_from = child.rank,
             .src = partial,
             .dst = waiting};
      if (child.rank == place_.children.back().rank) finish(s, to, echo);
      last_ = program_.add(s, after);
      after = {last_};
      partial = waiting;
      lowest = std::min(lowest, child.lowest);
    }
  }

  /// The result comes from `from` into the output and goes on to the children. It must not land before what
  /// `up` added has read the input, which may be the same memory.
  void down(rank_t from, std::span<const step_index> after) {
    step s{.kind = step_kind::recv, .channel = channel_, .recv_from = from, .dst = out_};
    if (place_.children.size() == 1) {
      s.kind = step_kind::recv_copy_send;
      s.send_to = place_.children[0].rank;
    }
    const auto got = program_.add(s, after);
    if (place_.children.size() > 1) send_down(got);
  }

  void send_down(step_index ready) {
    for (const child_of_mine& child : place_.children)
      program_.add({.kind = step_kind::send, .channel = channel_, .send_to = child.rank, .src = out_},
                   {ready});
  }

  [[nodiscard]] step_index last() const { return last_; }
  [[nodiscard]] const tree_place& place() const { return place_; }

 private:
  void finish(step& s, rank_t to, bool echo) const {
    s.dst = out_;
    if (to != no_rank) {
      s.kind = step_kind::recv_reduce_send;
      s.send_to = to;
      s.dst = {};
    } else if (echo && place_.children.size() == 1) {
      s.kind = step_kind::recv_reduce_copy_send;
      s.send_to = s.recv_from;
    }
  }

  rank_program& program_;
  rank_t rank_;
  tree_place place_;
  channel_t channel_;
  block_ref in_;
  block_ref out_;
  step_index last_ = 0;
};

void copy_halves(rank_program& program) {
  for (std::uint32_t half = 0; half < trees; ++half)
    program.add({.kind = step_kind::copy, .src = {space::in, half, 1}, .dst = {space::out, half, 1}});
}

rank_program all_reduce_program(rank_t rank, rank_t ranks) {
  rank_program program;
  if (ranks == 1) {
    copy_halves(program);
    return program;
  }
  const labelled_ranks labels{ranks, 0, ranks};
  std::vector<tree_steps> both;
  for (std::uint32_t tree = 0; tree < trees; ++tree) {
    tree_steps& steps = both.emplace_back(program, tree, rank, labels.find(tree, rank));
    steps.up(steps.place().parent, {space::out, tree, 1}, true);
  }
  for (tree_steps& steps : both) {
    if (const step_index up = steps.last(); steps.place().parent != no_rank)
      steps.down(steps.place().parent, {&up, 1});
    else if (steps.place().children.size() > 1)
      steps.send_down(up);
  }
  return program;
}

/// The ranks of a rooted collective but the root.
labelled_ranks below_root(rank_t ranks, rank_t root) { return {ranks - 1, (root + 1) % ranks, ranks}; }

rank_program broadcast_program(rank_t rank, rank_t ranks, rank_t root) {
  rank_program program;
  const labelled_ranks labels = below_root(ranks, root);
  for (std::uint32_t tree = 0; tree < trees && ranks > 1; ++tree) {
    if (rank == root) {
      program.add({.kind = step_kind::send,
                   .channel = static_cast<channel_t>(tree),
                   .send_to = labels.top(tree),
                   .src = {space::in, tree, 1}});
      continue;
    }
    tree_steps steps{program, tree, rank, labels.find(tree, rank)};
    const rank_t parent = steps.place().parent;
    steps.down(parent == no_rank ? root : parent, {});
  }
  if (rank == root) copy_halves(program);
  return program;
}

rank_program reduce_program(rank_t rank, rank_t ranks, rank_t root) {
  rank_program program;
  if (ranks == 1) {
    copy_halves(program);
    return program;
  }
  const labelled_ranks labels = below_root(ranks, root);
  for (std::uint32_t tree = 0; tree < trees; ++tree) {
    if (rank == root) {
      program.add({.kind = step_kind::recv_reduce,
                   .order = root == 0 ? operand_order::local_first : operand_order::arriving_first,
                   .channel = static_cast<channel_t>(tree),
                   .recv_from = labels.top(tree),
                   .src = {space::in, tree, 1},
                   .dst = {space::out, tree, 1}});
      continue;
    }
    tree_steps steps{program, tree, rank, labels.find(tree, rank)};
    block_ref waiting{};
    if (steps.place().children.size() > 1)
      waiting = {space::scratch, program.add_scratch({space::in, tree}), 1};
    const rank_t parent = steps.place().parent;
    steps.up(parent == no_rank ? root : parent, waiting, false);
  }
  return program;
}

algorithm double_tree(definition what, algorithm::generator make) {
  what.blocks = trees;
  return {"double binary tree",         what, std::move(make), placement_support::both, step_unit::block,
          share_lengths::each_end_knows};
}

}  // namespace

result<algorithm> double_tree_all_reduce(rank_t ranks) {
  if (auto refused = out_of_range("double binary tree", ranks)) return *refused;
  return double_tree({.what = collective::all_reduce, .ranks = ranks},
                     [=](rank_t rank) { return all_reduce_program(rank, ranks); });
}

result<algorithm> double_tree_broadcast(rank_t ranks, rank_t root) {
  if (auto refused = out_of_range("double binary tree broadcast", ranks, root)) return *refused;
  return double_tree({.what = collective::broadcast, .ranks = ranks, .root = root},
                     [=](rank_t rank) { return broadcast_program(rank, ranks, root); });
}

result<algorithm> double_tree_reduce(rank_t ranks, rank_t root) {
  if (auto refused = out_of_range("double binary tree reduce", ranks, root)) return *refused;
  return double_tree({.what = collective::reduce, .ranks = ranks, .root = root},
                     [=](rank_t rank) { return reduce_program(rank, ranks, root); });
}

}  // namespace chorale::schedule
