#include <chorale/schedule/generators.hpp>

namespace chorale::schedule {
namespace {

constexpr block_ref input{space::in, 0, 1};
constexpr block_ref output{space::out, 0, 1};

/// Partial sums climb from rank 0 to the last rank; the result comes back down the same way. In place, the
/// result may land only after the step that read the input.
rank_program program_of(rank_t rank, rank_t ranks) {
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

}  // namespace

result<algorithm> chain_all_reduce(rank_t ranks) {
  if (ranks < 1)
    return error{errc::invalid_argument,
                 "chain over " + std::to_string(ranks) + " ranks: ask for at least one"};
  return algorithm{"chain", definition{.what = collective::all_reduce, .ranks = ranks},
                   [ranks](rank_t rank) { return program_of(rank, ranks); }};
}

}  // namespace chorale::schedule
