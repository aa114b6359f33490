#include <chorale/schedule/generators.hpp>

#include <optional>

namespace chorale::schedule {
namespace {

/// One rank's view: peers are visited at distance 1, 2, … so that no rank is everyone's first target.
struct member {
  rank_t rank;
  rank_t ranks;
  [[nodiscard]] rank_t after(rank_t distance) const { return (rank + distance) % ranks; }
  [[nodiscard]] rank_t before(rank_t distance) const { return (rank + ranks - distance) % ranks; }
};

constexpr block_ref one(space where, rank_t block) { return {where, static_cast<std::uint32_t>(block), 1}; }

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

/// Folds what the peers send into `slice` of out, which already holds my own part. The lower ranks are folded
/// on their own first, because my part must not come before theirs. Returns the step that completes it.
class fold {
 public:
  fold(rank_program& program, member me, std::uint32_t slice, step_index own_copied)
      : program_{program}, me_{me}, slice_{space::out, slice, 1}, last_{own_copied} {}

  step_index staged() {
    std::vector<std::pair<block_ref, step_index>> part(static_cast<std::size_t>(me_.ranks));
    for (rank_t d = 1; d < me_.ranks; ++d) {
      const rank_t peer = me_.before(d);
      const block_ref place = new_scratch();
      const auto got = program_.add({.kind = step_kind::recv, .recv_from = peer, .dst = place});
      part[static_cast<std::size_t>(peer)] = {place, got};
    }
    std::optional<std::pair<block_ref, step_index>> lower;
    for (rank_t peer = 0; peer < me_.ranks; ++peer) {
      if (peer == me_.rank) {
        if (lower) take_lower(*lower);
        continue;
      }
      const auto [place, got] = part[static_cast<std::size_t>(peer)];
      if (peer < me_.rank && !lower)
        lower = {place, got};
      else if (peer < me_.rank)
        lower->second = reduce(place, got, lower->first, lower->second, operand_order::local_first);
      else
        last_ = reduce(place, got, slice_, last_, operand_order::local_first);
    }
    return last_;
  }

  step_index streamed() {
    if (me_.rank == 1) {
      last_ = receive_onto(0, slice_, last_, operand_order::arriving_first);
    } else if (me_.rank > 1) {
      const block_ref place = new_scratch();
      auto got = program_.add({.kind = step_kind::recv, .recv_from = 0, .dst = place});
      for (rank_t peer = 1; peer < me_.rank; ++peer)
        got = receive_onto(peer, place, got, operand_order::local_first);
      take_lower({place, got});
    }
    for (rank_t peer = me_.rank + 1; peer < me_.ranks; ++peer)
      last_ = receive_onto(peer, slice_, last_, operand_order::local_first);
    return last_;
  }

 private:
  block_ref new_scratch() { return {space::scratch, program_.add_scratch({slice_.where, slice_.block}), 1}; }
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
  void take_lower(std::pair<block_ref, step_index> lower) {
    last_ = reduce(lower.first, lower.second, slice_, last_, operand_order::arriving_first);
  }

  rank_program& program_;
  member me_;
  block_ref slice_;
  step_index last_;
};

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

rank_program reduce_program(member me, fold_style style, bool then_share) {
  rank_program program;
  const auto own = static_cast<std::uint32_t>(me.rank);
  const std::uint32_t slice = then_share ? own : 0;
  program.reserve(static_cast<std::size_t>(me.ranks) * 5);
  const auto copied =
      program.add({.kind = step_kind::copy, .src = {space::in, own, 1}, .dst = {space::out, slice, 1}});
  const auto sent = send_parts(program, me);
  fold owner{program, me, slice, copied};
  const step_index done = style == fold_style::staged ? owner.staged() : owner.streamed();
  if (then_share) exchange_results(program, me, {space::out, own, 1}, done, sent);
  return program;
}

error no_ranks(std::string_view what, rank_t ranks) {
  return error{errc::invalid_argument,
               std::string{what} + " over " + std::to_string(ranks) + " ranks: ask for at least one"};
}

}  // namespace

std::string_view name_of(fold_style fold) noexcept {
  return fold == fold_style::staged ? "staged" : "streamed";
}

result<algorithm> slice_owner_all_reduce(rank_t ranks, fold_style fold) {
  if (ranks < 1) return no_ranks("slice owner", ranks);
  const definition meaning{
      .what = collective::all_reduce, .ranks = ranks, .blocks = static_cast<std::uint32_t>(ranks)};
  return algorithm{"slice owner, " + std::string{name_of(fold)}, meaning,
                   [=](rank_t rank) { return reduce_program({rank, ranks}, fold, true); }};
}

result<algorithm> slice_owner_reduce_scatter(rank_t ranks, fold_style fold) {
  if (ranks < 1) return no_ranks("slice owner", ranks);
  return algorithm{"slice owner, " + std::string{name_of(fold)},
                   definition{.what = collective::reduce_scatter, .ranks = ranks},
                   [=](rank_t rank) { return reduce_program({rank, ranks}, fold, false); }};
}

result<algorithm> direct_all_gather(rank_t ranks) {
  if (ranks < 1) return no_ranks("direct all_gather", ranks);
  return algorithm{"direct", definition{.what = collective::all_gather, .ranks = ranks},
                   [ranks](rank_t rank) {
                     rank_program program;
                     program.add({.kind = step_kind::copy,
                                  .src = {space::in, 0, 1},
                                  .dst = {space::out, static_cast<std::uint32_t>(rank), 1}});
                     exchange_results(program, {rank, ranks}, {space::in, 0, 1}, std::nullopt, {});
                     return program;
                   }};
}

}  // namespace chorale::schedule
