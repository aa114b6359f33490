#include <chorale/schedule/generator_arguments.hpp>
#include <chorale/schedule/member.hpp>
#include <chorale/schedule/slice_fold.hpp>

#include <optional>

namespace chorale::schedule {
namespace {

/// Sends my part of every other slice to its owner; returns the sends by slice (my own entry is unused).
std::vector<step_index> send_parts(rank_program& program, member me) {
  std::vector<step_index> sent(static_cast<std::size_t>(me.ranks));
  for (rank_t d = 1; d < me.ranks; ++d) {
    const rank_t owner = me.after(d);
    sent[static_cast<std::size_t>(owner)] =
        program.add({.kind = step_kind::send, .send_to = owner, .src = one(space::in, owner)});
  }
  return sent;
}

/// Sends `result` to everyone once `ready`, receives everyone's share into out. `overwritten[q]`, if given,
/// is the step that must have read in[q] before out[q] is written: in place they are one.
void exchange_results(rank_program& program, member me, block_ref result, std::optional<step_index> ready,
                      std::span<const step_index> overwritten) {
  for (rank_t d = 1; d < me.ranks; ++d) {
    const step send{.kind = step_kind::send, .send_to = me.after(d), .src = result};
    const rank_t peer = me.before(d);
    const step recv{.kind = step_kind::recv, .recv_from = peer, .dst = one(space::out, peer)};
    if (ready)
      program.add(send, {*ready});
    else
      program.add(send);
    if (overwritten.empty())
      program.add(recv);
    else
      program.add(recv, {overwritten[static_cast<std::size_t>(peer)]});
  }
}

rank_program reduce_program(member me, fold_style style, partial_sums sums, bool then_share) {
  rank_program program;
  const block_ref result = one(space::out, then_share ? me.rank : 0);
  program.reserve(static_cast<std::size_t>(me.ranks) * 5);
  const auto sent = send_parts(program, me);
  const step_index done = add_fold(program, {.rank = me.rank,
                                             .ranks = me.ranks,
                                             .own = one(space::in, me.rank),
                                             .result = result,
                                             .style = style,
                                             .sums = sums});
  if (then_share) exchange_results(program, me, result, done, sent);
  return program;
}

/// Owners hand their sums to the root, which owns a slice like everyone.
rank_program rooted_program(member me, rank_t root, fold_style style) {
  rank_program program;
  program.reserve(static_cast<std::size_t>(me.ranks) * 4);
  const auto sent = send_parts(program, me);
  slice_fold fold{.rank = me.rank,
                  .ranks = me.ranks,
                  .own = one(space::in, me.rank),
                  .style = style,
                  .sums = partial_sums::in_accumulators};
  if (me.rank == root)
    fold.result = one(space::out, root);
  else
    fold.send_to = root;
  add_fold(program, fold);
  for (rank_t d = 1; me.rank == root && d < me.ranks; ++d) {
    const rank_t peer = me.before(d);
    program.add({.kind = step_kind::recv, .recv_from = peer, .dst = one(space::out, peer)},
                {sent[static_cast<std::size_t>(peer)]});
  }
  return program;
}

rank_program direct_reduce_program(member me, rank_t root, fold_style style, partial_sums sums) {
  rank_program program;
  const block_ref own = one(space::in, 0);
  if (me.rank == root)
    add_fold(program, {.rank = root,
                       .ranks = me.ranks,
                       .own = own,
                       .result = one(space::out, 0),
                       .style = style,
                       .sums = sums});
  else
    program.add({.kind = step_kind::send, .send_to = root, .src = own});
  return program;
}

std::string name_of_fold(fold_style fold, partial_sums sums) {
  return "slice owner, " + std::string{name_of(fold)} +
         (sums == partial_sums::in_accumulators ? ", accumulators" : "");
}

}  // namespace

std::string_view name_of(fold_style fold) noexcept {
  return fold == fold_style::staged ? "staged" : "streamed";
}

result<algorithm> slice_owner_all_reduce(rank_t ranks, fold_style fold, partial_sums sums) {
  if (auto refused = out_of_range("slice owner", ranks)) return *refused;
  const definition meaning{
      .what = collective::all_reduce, .ranks = ranks, .blocks = static_cast<std::uint32_t>(ranks)};
  return algorithm{name_of_fold(fold, sums),
                   meaning,
                   [=](rank_t rank) { return reduce_program({rank, ranks}, fold, sums, true); },
                   placement_support::both,
                   step_unit::block,
                   share_lengths::each_end_knows};
}

result<algorithm> slice_owner_reduce_scatter(rank_t ranks, fold_style fold, partial_sums sums) {
  if (auto refused = out_of_range("slice owner", ranks)) return *refused;
  return algorithm{name_of_fold(fold, sums),
                   definition{.what = collective::reduce_scatter, .ranks = ranks},
                   [=](rank_t rank) { return reduce_program({rank, ranks}, fold, sums, false); },
                   placement_support::both,
                   step_unit::block,
                   share_lengths::each_end_knows};
}

result<algorithm> slice_owner_reduce(rank_t ranks, rank_t root, fold_style fold) {
  if (auto refused = out_of_range("slice owner reduce", ranks, root)) return *refused;
  const definition meaning{
      .what = collective::reduce, .ranks = ranks, .blocks = static_cast<std::uint32_t>(ranks), .root = root};
  return algorithm{"slice owner, " + std::string{name_of(fold)},
                   meaning,
                   [=](rank_t rank) { return rooted_program({rank, ranks}, root, fold); },
                   placement_support::both,
                   step_unit::block,
                   share_lengths::each_end_knows};
}

result<algorithm> direct_reduce(rank_t ranks, rank_t root, fold_style fold, partial_sums sums) {
  if (auto refused = out_of_range("direct reduce", ranks, root)) return *refused;
  return algorithm{"direct, " + std::string{name_of(fold)} +
                       (sums == partial_sums::in_accumulators ? ", accumulators" : ""),
                   definition{.what = collective::reduce, .ranks = ranks, .root = root},
                   [=](rank_t rank) { return direct_reduce_program({rank, ranks}, root, fold, sums); },
                   placement_support::both,
                   step_unit::block,
                   share_lengths::each_end_knows};
}

result<algorithm> direct_all_gather(rank_t ranks) {
  if (auto refused = out_of_range("direct all_gather", ranks)) return *refused;
  return algorithm{
      "direct",
      definition{.what = collective::all_gather, .ranks = ranks},
      [ranks](rank_t rank) {
        rank_program program;
        program.add({.kind = step_kind::copy, .src = one(space::in, 0), .dst = one(space::out, rank)});
        exchange_results(program, {rank, ranks}, one(space::in, 0), std::nullopt, {});
        return program;
      },
      placement_support::both,
      step_unit::block,
      share_lengths::each_end_knows};
}

}  // namespace chorale::schedule
