#include <chorale/schedule/generator_arguments.hpp>
#include <chorale/schedule/generators.hpp>
#include <chorale/schedule/member.hpp>

#include <vector>

namespace chorale::schedule {
namespace {

rank_program broadcast_program(member me, rank_t root) {
  rank_program program;
  if (me.rank != root) {
    program.add({.kind = step_kind::recv, .recv_from = root, .dst = one(space::out, 0)});
    return program;
  }
  for (rank_t d = 1; d < me.ranks; ++d)
    program.add({.kind = step_kind::send, .send_to = me.after(d), .src = one(space::in, 0)});
  program.add({.kind = step_kind::copy, .src = one(space::in, 0), .dst = one(space::out, 0)});
  return program;
}

rank_program gather_program(member me, rank_t root) {
  rank_program program;
  if (me.rank != root) {
    program.add({.kind = step_kind::send, .send_to = root, .src = one(space::in, 0)});
    return program;
  }
  for (rank_t d = 1; d < me.ranks; ++d)
    program.add({.kind = step_kind::recv, .recv_from = me.after(d), .dst = one(space::out, me.after(d))});
  program.add({.kind = step_kind::copy, .src = one(space::in, 0), .dst = one(space::out, root)});
  return program;
}

rank_program scatter_program(member me, rank_t root) {
  rank_program program;
  if (me.rank != root) {
    program.add({.kind = step_kind::recv, .recv_from = root, .dst = one(space::out, 0)});
    return program;
  }
  for (rank_t d = 1; d < me.ranks; ++d)
    program.add({.kind = step_kind::send, .send_to = me.after(d), .src = one(space::in, me.after(d))});
  program.add({.kind = step_kind::copy, .src = one(space::in, root), .dst = one(space::out, 0)});
  return program;
}

/// In round d everyone sends d ranks up and receives from d ranks down. In place, a share may arrive only
/// after the one it replaces has left.
rank_program all_to_all_program(member me) {
  rank_program program;
  program.reserve(static_cast<std::size_t>(me.ranks) * 2);
  std::vector<step_index> sent(static_cast<std::size_t>(me.ranks));
  for (rank_t d = 1; d < me.ranks; ++d) {
    const rank_t to = me.after(d);
    sent[static_cast<std::size_t>(to)] =
        program.add({.kind = step_kind::send, .send_to = to, .src = one(space::in, to)});
  }
  for (rank_t d = 1; d < me.ranks; ++d) {
    const rank_t from = me.before(d);
    program.add({.kind = step_kind::recv, .recv_from = from, .dst = one(space::out, from)},
                {sent[static_cast<std::size_t>(from)]});
  }
  program.add({.kind = step_kind::copy, .src = one(space::in, me.rank), .dst = one(space::out, me.rank)});
  return program;
}

algorithm direct(definition what, algorithm::generator make) {
  return {"direct",         what,
          std::move(make),  placement_support::both,
          step_unit::block, share_lengths::each_end_knows};
}

}  // namespace

result<algorithm> direct_broadcast(rank_t ranks, rank_t root) {
  if (auto refused = out_of_range("direct broadcast", ranks, root)) return *refused;
  return direct({.what = collective::broadcast, .ranks = ranks, .root = root},
                [=](rank_t rank) { return broadcast_program({rank, ranks}, root); });
}

result<algorithm> direct_gather(rank_t ranks, rank_t root) {
  if (auto refused = out_of_range("direct gather", ranks, root)) return *refused;
  return direct({.what = collective::gather, .ranks = ranks, .root = root},
                [=](rank_t rank) { return gather_program({rank, ranks}, root); });
}

result<algorithm> direct_scatter(rank_t ranks, rank_t root) {
  if (auto refused = out_of_range("direct scatter", ranks, root)) return *refused;
  return direct({.what = collective::scatter, .ranks = ranks, .root = root},
                [=](rank_t rank) { return scatter_program({rank, ranks}, root); });
}

result<algorithm> direct_all_to_all(rank_t ranks) {
  if (auto refused = out_of_range("direct all_to_all", ranks)) return *refused;
  return direct({.what = collective::all_to_all, .ranks = ranks},
                [=](rank_t rank) { return all_to_all_program({rank, ranks}); });
}

}  // namespace chorale::schedule
