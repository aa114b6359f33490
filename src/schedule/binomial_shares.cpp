// Gather and scatter along a binomial tree. A subtree's shares are one run of ranks, so they travel as one
// message, or as two where the run wraps around from the last rank to rank 0.

#include <chorale/schedule/binomial_tree.hpp>
#include <chorale/schedule/generator_arguments.hpp>
#include <chorale/schedule/generators.hpp>

#include <ranges>
#include <vector>

namespace chorale::schedule {
namespace {

/// Where the shares of a run of places lie at one rank: in the root's buffer by rank, elsewhere in scratch by
/// place.
class share_store {
 public:
  share_store(rank_program& program, const binomial_tree& tree, space roots_buffer)
      : tree_{tree}, roots_buffer_{roots_buffer} {
    if (tree.is_root()) return;
    const place_run mine = tree.subtree();
    for (rank_t place = mine.first; place < mine.last; ++place)
      program.add_scratch({roots_buffer, static_cast<std::uint32_t>(tree.rank_of(place))});
  }
  [[nodiscard]] block_ref operator[](place_run run) const {
    if (tree_.is_root())
      return {roots_buffer_, static_cast<std::uint32_t>(tree_.rank_of(run.first)), run.size()};
    return {space::scratch, static_cast<std::uint32_t>(run.first - tree_.subtree().first), run.size()};
  }
  [[nodiscard]] block_ref own() const {
    const rank_t first = tree_.subtree().first;
    return (*this)[{first, first + 1}];
  }

 private:
  const binomial_tree& tree_;
  space roots_buffer_;
};

rank_program gather_program(const binomial_tree& tree) {
  rank_program program;
  const auto children = tree.children();
  if (children.empty() && !tree.is_root()) {
    program.add({.kind = step_kind::send, .send_to = tree.parent(), .src = {space::in, 0, 1}});
    return program;
  }
  const share_store shares{program, tree, space::out};
  std::vector<step_index> present{
      program.add({.kind = step_kind::copy, .src = {space::in, 0, 1}, .dst = shares.own()})};
  for (const place_run& child : children) {
    for (const place_run& run : tree.without_wrap(child))
      present.push_back(
          program.add({.kind = step_kind::recv, .recv_from = tree.rank_of(child.first), .dst = shares[run]}));
  }
  if (tree.is_root()) return program;
  for (const place_run& run : tree.without_wrap(tree.subtree()))
    program.add({.kind = step_kind::send, .send_to = tree.parent(), .src = shares[run]}, present);
  return program;
}

rank_program scatter_program(const binomial_tree& tree) {
  rank_program program;
  const auto children = tree.children();
  if (children.empty() && !tree.is_root()) {
    program.add({.kind = step_kind::recv, .recv_from = tree.parent(), .dst = {space::out, 0, 1}});
    return program;
  }
  const share_store shares{program, tree, space::in};
  std::vector<step_index> present;
  if (!tree.is_root()) {
    for (const place_run& run : tree.without_wrap(tree.subtree()))
      present.push_back(
          program.add({.kind = step_kind::recv, .recv_from = tree.parent(), .dst = shares[run]}));
  }
  for (const place_run& child : std::views::reverse(children)) {
    for (const place_run& run : tree.without_wrap(child))
      program.add({.kind = step_kind::send, .send_to = tree.rank_of(child.first), .src = shares[run]},
                  present);
  }
  program.add({.kind = step_kind::copy, .src = shares.own(), .dst = {space::out, 0, 1}}, present);
  return program;
}

algorithm along_tree(definition what, algorithm::generator make) {
  return {"binomial tree",          what,
          std::move(make),          placement_support::both,
          step_unit::run_of_blocks, share_lengths::all_ranks_know};
}

}  // namespace

result<algorithm> binomial_gather(rank_t ranks, rank_t root) {
  if (auto refused = out_of_range("binomial gather", ranks, root)) return *refused;
  return along_tree({.what = collective::gather, .ranks = ranks, .root = root},
                    [=](rank_t rank) { return gather_program({ranks, root, rank}); });
}

result<algorithm> binomial_scatter(rank_t ranks, rank_t root) {
  if (auto refused = out_of_range("binomial scatter", ranks, root)) return *refused;
  return along_tree({.what = collective::scatter, .ranks = ranks, .root = root},
                    [=](rank_t rank) { return scatter_program({ranks, root, rank}); });
}

}  // namespace chorale::schedule
