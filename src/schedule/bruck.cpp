// Bruck's schedules: log n rounds for any number of ranks, for messages so small that rounds are what counts.

#include <chorale/schedule/generator_arguments.hpp>
#include <chorale/schedule/generators.hpp>
#include <chorale/schedule/member.hpp>

#include <algorithm>
#include <optional>
#include <vector>

namespace chorale::schedule {
namespace {

/// The shares of `count` ranks from `first` on, cut where the ranks wrap around.
std::vector<block_ref> runs_of(rank_t first, rank_t count, rank_t ranks) {
  const rank_t before_wrap = std::min(count, ranks - first);
  std::vector<block_ref> runs{
      {space::out, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(before_wrap)}};
  if (before_wrap < count) runs.push_back({space::out, 0, static_cast<std::uint32_t>(count - before_wrap)});
  return runs;
}

/// Shares go straight to where they belong. I hold those of `held` ranks from mine on; each round nearly
/// doubles them.
rank_program all_gather_program(member me) {
  rank_program program;
  std::vector<step_index> present{
      program.add({.kind = step_kind::copy, .src = one(space::in, 0), .dst = one(space::out, me.rank)})};
  for (rank_t held = 1; held < me.ranks;) {
    const rank_t moved = std::min(held, me.ranks - held);
    for (const block_ref& run : runs_of(me.rank, moved, me.ranks))
      program.add({.kind = step_kind::send, .send_to = me.before(held), .src = run}, present);
    std::vector<step_index> got;
    for (const block_ref& run : runs_of(me.after(held), moved, me.ranks))
      got.push_back(program.add({.kind = step_kind::recv, .recv_from = me.after(held), .dst = run}));
    present.insert(present.end(), got.begin(), got.end());
    held += moved;
  }
  return program;
}

/// A share still has `distance` ranks to go; the round of bit b moves all whose distance has that bit, packed
/// into one message.
class all_to_all_steps {
 public:
  explicit all_to_all_steps(member me) : me_{me} {
    for (rank_t distance = 0; distance < me.ranks; ++distance)
      at_.push_back({one(space::in, me.after(distance)), std::nullopt});
    read_.resize(at_.size());
  }

  rank_program program() && {
    for (rank_t bit = 1; bit < me_.ranks; bit *= 2) exchange(bit);
    program_.add(
        {.kind = step_kind::copy, .src = one(space::in, me_.rank), .dst = one(space::out, me_.rank)});
    for (rank_t distance = 1; distance < me_.ranks; ++distance) unpack(distance);
    return std::move(program_);
  }

 private:
  struct held_share {
    block_ref where;
    std::optional<step_index> by;
  };

  std::uint32_t add_scratch(std::size_t blocks) {
    const auto first = static_cast<std::uint32_t>(program_.scratch().size());
    for (std::size_t b = 0; b < blocks; ++b) program_.add_scratch({space::in, 0});
    return first;
  }

  void exchange(rank_t bit) {
    std::vector<std::size_t> moved;
    for (std::size_t distance = 1; distance < at_.size(); ++distance)
      if ((distance & static_cast<std::size_t>(bit)) != 0) moved.push_back(distance);
    const auto count = static_cast<std::uint32_t>(moved.size());
    const std::uint32_t packed = add_scratch(moved.size());
    const std::uint32_t landed = add_scratch(moved.size());
    std::vector<step_index> packs;
    for (std::uint32_t i = 0; i < count; ++i) {
      const held_share& share = at_[moved[i]];
      const step pack{.kind = step_kind::copy, .src = share.where, .dst = {space::scratch, packed + i, 1}};
      packs.push_back(share.by ? program_.add(pack, {*share.by}) : program_.add(pack));
      if (!share.by) read_[moved[i]] = packs.back();
    }
    program_.add({.kind = step_kind::send, .send_to = me_.after(bit), .src = {space::scratch, packed, count}},
                 packs);
    const auto got = program_.add(
        {.kind = step_kind::recv, .recv_from = me_.before(bit), .dst = {space::scratch, landed, count}});
    for (std::uint32_t i = 0; i < count; ++i) at_[moved[i]] = {{space::scratch, landed + i, 1}, got};
  }

  /// In place, the share that was there must have been packed.
  void unpack(rank_t distance) {
    const held_share& share = at_[static_cast<std::size_t>(distance)];
    const step_index there_before = read_[static_cast<std::size_t>(me_.ranks - distance)];
    program_.add({.kind = step_kind::copy, .src = share.where, .dst = one(space::out, me_.before(distance))},
                 {*share.by, there_before});
  }

  member me_;
  rank_program program_;
  std::vector<held_share> at_;    ///< by distance
  std::vector<step_index> read_;  ///< the step that took the share with that distance from the input
};

}  // namespace

result<algorithm> bruck_all_gather(rank_t ranks) {
  if (auto refused = out_of_range("Bruck's all_gather", ranks)) return *refused;
  return algorithm{"Bruck",
                   definition{.what = collective::all_gather, .ranks = ranks},
                   [=](rank_t rank) { return all_gather_program({rank, ranks}); },
                   placement_support::both,
                   step_unit::run_of_blocks,
                   share_lengths::each_end_knows};
}

result<algorithm> bruck_all_to_all(rank_t ranks) {
  if (auto refused = out_of_range("Bruck's all_to_all", ranks)) return *refused;
  return algorithm{"Bruck",
                   definition{.what = collective::all_to_all, .ranks = ranks},
                   [=](rank_t rank) { return all_to_all_steps{{rank, ranks}}.program(); },
                   placement_support::both,
                   step_unit::run_of_blocks,
                   share_lengths::equal};
}

}  // namespace chorale::schedule
