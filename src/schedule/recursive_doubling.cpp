#include <chorale/schedule/generator_arguments.hpp>
#include <chorale/schedule/generators.hpp>
#include <chorale/schedule/partners.hpp>

#include <algorithm>
#include <bit>
#include <optional>

namespace chorale::schedule {
namespace {

/// Builds the program of one rank that takes part in the exchanges. The partial result moves between two
/// vectors, out and one scratch vector, so that a partner's vector can be reduced while ours is still being
/// sent; the number of reductions decides where it starts, so that it ends in out.
class exchanger {
 public:
  exchanger(rank_program& program, unsigned reductions) : program_{program}, left_{reductions} {
    if (reductions > 1) program_.add_scratch({space::out, 0});
  }

  /// Receives `peer`'s partial result, sends ours too when `exchange`, and combines them.
  void combine(rank_t rank, rank_t peer, bool exchange) {
    std::vector<step_index> before;  // what must be over before the new partial result is written
    std::optional<step_index> sent;
    if (exchange) {
      sent = program_.add({.kind = step_kind::send, .send_to = peer, .src = partial_}, made());
    }
    --left_;
    const block_ref target{left_ % 2 == 0 ? space::out : space::scratch, 0, 1};
    if (made_) before.push_back(*made_);
    if (last_sent_) before.push_back(*last_sent_);  // it read the vector we are about to overwrite
    // In place, out is also the input that this very round sends.
    if (sent && partial_.where == space::in && target.where == space::out) before.push_back(*sent);
    made_ = program_.add({.kind = step_kind::recv_reduce,
                          .order = rank < peer ? operand_order::local_first : operand_order::arriving_first,
                          .recv_from = peer,
                          .src = partial_,
                          .dst = target},
                         before);
    last_sent_ = sent;
    partial_ = target;
  }

  void send_result(rank_t peer) {
    program_.add({.kind = step_kind::send, .send_to = peer, .src = partial_}, made());
  }

 private:
  [[nodiscard]] std::span<const step_index> made() const {
    return made_ ? std::span{&*made_, 1} : std::span<const step_index>{};
  }

  rank_program& program_;
  unsigned left_;
  block_ref partial_{space::in, 0, 1};
  std::optional<step_index> made_;       ///< the step that wrote partial_
  std::optional<step_index> last_sent_;  ///< the send of the partial result before
};

rank_program program_of(rank_t rank, rank_t ranks) {
  rank_program program;
  if (ranks == 1) {
    program.add({.kind = step_kind::copy, .src = {space::in, 0, 1}, .dst = {space::out, 0, 1}});
    return program;
  }
  const partner_places places{ranks};
  if (places.stands_aside(rank)) {
    const auto sent = program.add({.kind = step_kind::send, .send_to = rank - 1, .src = {space::in, 0, 1}});
    program.add({.kind = step_kind::recv, .recv_from = rank - 1, .dst = {space::out, 0, 1}}, {sent});
    return program;
  }
  const bool paired = places.paired(rank);
  const auto rounds = static_cast<unsigned>(std::countr_zero(static_cast<std::uint32_t>(places.partners())));
  exchanger exchange{program, rounds + (paired ? 1U : 0U)};
  if (paired) exchange.combine(rank, rank + 1, false);
  for (rank_t distance = 1; distance < places.partners(); distance *= 2)
    exchange.combine(rank, places.rank_of(places.place_of(rank) ^ distance), true);
  if (paired) exchange.send_result(rank + 1);
  return program;
}

}  // namespace

result<algorithm> recursive_doubling_all_reduce(rank_t ranks) {
  if (auto refused = out_of_range("recursive doubling", ranks)) return *refused;
  return algorithm{"recursive doubling",
                   definition{.what = collective::all_reduce, .ranks = ranks},
                   [ranks](rank_t rank) { return program_of(rank, ranks); },
                   placement_support::both,
                   step_unit::block,
                   share_lengths::each_end_knows};
}

}  // namespace chorale::schedule
