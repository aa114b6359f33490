#include <chorale/schedule/generator_arguments.hpp>
#include <chorale/schedule/generators.hpp>

namespace chorale::schedule {
namespace {

constexpr block_ref input{space::in, 0, 1};
constexpr block_ref output{space::out, 0, 1};

/// Partial sums climb from rank 0 to the last rank; the result comes back down the same way. In place, the
/// result may land only after the step that read the input.
rank_program all_reduce_program(rank_t rank, rank_t ranks) {
  rank_program program;
  const rank_t below = rank - 1;
  const rank_t above = rank + 1;
  if (ranks == 1) {
    program.add({.kind = step_kind::copy, .src = input, .dst = output});
  } else if (rank == 0) {
    const auto read = program.add({.kind = step_kind::send, .send_to = above, .src = input});
    program.add({.kind = step_kind::recv, .recv_from = above, .dst = output}, {read});
  } else if (above < ranks) {
    const auto read = program.add({.kind = step_kind::recv_reduce_send,
                                   .order = operand_order::arriving_first,
                                   .send_to = above,
                                   .recv_from = below,
                                   .src = input});
    program.add({.kind = step_kind::recv_copy_send, .send_to = below, .recv_from = above, .dst = output},
                {read});
  } else {
    program.add({.kind = step_kind::recv_reduce_copy_send,
                 .order = operand_order::arriving_first,
                 .send_to = below,
                 .recv_from = below,
                 .src = input,
                 .dst = output});
  }
  return program;
}

/// From the root up the ranks, around to the one below it.
rank_program broadcast_program(rank_t rank, rank_t ranks, rank_t root) {
  rank_program program;
  const rank_t above = (rank + 1) % ranks;
  const rank_t below = (rank + ranks - 1) % ranks;
  if (rank == root) {
    if (ranks > 1) program.add({.kind = step_kind::send, .send_to = above, .src = input});
    program.add({.kind = step_kind::copy, .src = input, .dst = output});
  } else if (above != root) {
    program.add({.kind = step_kind::recv_copy_send, .send_to = above, .recv_from = below, .dst = output});
  } else {
    program.add({.kind = step_kind::recv, .recv_from = below, .dst = output});
  }
  return program;
}

/// Up the ranks whatever the root, so that the sum is the left fold; the last rank hands it to the root.
rank_program reduce_program(rank_t rank, rank_t ranks, rank_t root) {
  rank_program program;
  const rank_t last = ranks - 1;
  if (ranks == 1) {
    program.add({.kind = step_kind::copy, .src = input, .dst = output});
    return program;
  }
  const rank_t to = rank == last ? root : rank + 1;
  step s{.kind = step_kind::recv_reduce_send,
         .order = operand_order::arriving_first,
         .send_to = to,
         .recv_from = rank - 1,
         .src = input};
  if (rank == 0) {
    s = {.kind = step_kind::send, .send_to = to, .src = input};
  } else if (to == rank) {
    s.kind = step_kind::recv_reduce;
    s.dst = output;
  }
  const auto read = program.add(s);
  if (rank == root && root != last)
    program.add({.kind = step_kind::recv, .recv_from = last, .dst = output}, {read});
  return program;
}

rank_program scan_program(rank_t rank, rank_t ranks) {
  rank_program program;
  const bool last = rank + 1 == ranks;
  if (rank == 0) {
    if (!last) program.add({.kind = step_kind::send, .send_to = 1, .src = input});
    program.add({.kind = step_kind::copy, .src = input, .dst = output});
    return program;
  }
  program.add({.kind = last ? step_kind::recv_reduce : step_kind::recv_reduce_copy_send,
               .order = operand_order::arriving_first,
               .send_to = last ? no_rank : rank + 1,
               .recv_from = rank - 1,
               .src = input,
               .dst = output});
  return program;
}

/// What arrives is my result; the next rank's takes my input too. In place the input must be kept first, and
/// it is kept anyhow, because that needs no message and so costs no time.
rank_program exscan_program(rank_t rank, rank_t ranks) {
  rank_program program;
  const bool last = rank + 1 == ranks;
  if (rank == 0) {
    if (!last) program.add({.kind = step_kind::send, .send_to = 1, .src = input});
  } else if (last) {
    program.add({.kind = step_kind::recv, .recv_from = rank - 1, .dst = output});
  } else {
    const block_ref next{space::scratch, program.add_scratch({space::in, 0}), 1};
    const auto kept = program.add({.kind = step_kind::copy, .src = input, .dst = next});
    const auto got = program.add({.kind = step_kind::recv, .recv_from = rank - 1, .dst = output}, {kept});
    const auto sum = program.add(
        {.kind = step_kind::reduce, .order = operand_order::arriving_first, .src = output, .dst = next},
        {kept, got});
    program.add({.kind = step_kind::send, .send_to = rank + 1, .src = next}, {sum});
  }
  return program;
}

algorithm chain(definition what, algorithm::generator make) {
  return {"chain",          what,
          std::move(make),  placement_support::both,
          step_unit::block, share_lengths::each_end_knows};
}

}  // namespace

result<algorithm> chain_all_reduce(rank_t ranks) {
  if (auto refused = out_of_range("chain", ranks)) return *refused;
  return chain({.what = collective::all_reduce, .ranks = ranks},
               [ranks](rank_t rank) { return all_reduce_program(rank, ranks); });
}

result<algorithm> chain_broadcast(rank_t ranks, rank_t root) {
  if (auto refused = out_of_range("chain broadcast", ranks, root)) return *refused;
  return chain({.what = collective::broadcast, .ranks = ranks, .root = root},
               [=](rank_t rank) { return broadcast_program(rank, ranks, root); });
}

result<algorithm> chain_reduce(rank_t ranks, rank_t root) {
  if (auto refused = out_of_range("chain reduce", ranks, root)) return *refused;
  return chain({.what = collective::reduce, .ranks = ranks, .root = root},
               [=](rank_t rank) { return reduce_program(rank, ranks, root); });
}

result<algorithm> chain_scan(rank_t ranks) {
  if (auto refused = out_of_range("chain scan", ranks)) return *refused;
  return chain({.what = collective::scan, .ranks = ranks},
               [ranks](rank_t rank) { return scan_program(rank, ranks); });
}

result<algorithm> chain_exscan(rank_t ranks) {
  if (auto refused = out_of_range("chain exscan", ranks)) return *refused;
  return chain({.what = collective::exscan, .ranks = ranks},
               [ranks](rank_t rank) { return exscan_program(rank, ranks); });
}

}  // namespace chorale::schedule
