// The schedules chorale writes itself. Each is correct for every number of ranks, in place and out of place;
// the checker's tests hold that. Arguments out of range give errc::invalid_argument, nothing else can fail.
//
// What an all_reduce of S bytes over n ranks costs each rank, and the expression it evaluates:
//   ring                2(n - 1) messages per channel, 2S(n - 1)/n bytes; one chain per block, computed once
//   recursive doubling  log2 n messages of S bytes (two more for the ranks beyond a power of two); one tree
//                       over neighbours in rank order
//   slice owner         2(n - 1) messages, 2S(n - 1)/n bytes; the left fold in rank order
//   chain               2 messages of S bytes, up and down at once when cut; the left fold in rank order
//
// Rings need edges that hold two messages (see checker.hpp), all others one. A ring channel keeps one message
// per rank moving: two channels let a rank receive the next while it sends the last.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/schedule/schedule.hpp>

#include <cstdint>
#include <vector>

namespace chorale::schedule {

/// The ranks around a ring, one per position; empty: 0, 1, …, n − 1.
using ring_order = std::vector<rank_t>;

/// Each channel is a ring of its own over its share of every block.
[[nodiscard]] result<algorithm> ring_all_reduce(rank_t ranks, std::uint32_t channels = 1,
                                                ring_order order = {});
[[nodiscard]] result<algorithm> ring_reduce_scatter(rank_t ranks, std::uint32_t channels = 1,
                                                    ring_order order = {});
[[nodiscard]] result<algorithm> ring_all_gather(rank_t ranks, std::uint32_t channels = 1,
                                                ring_order order = {});

/// Whole vectors between partners at distance 1, 2, 4 …; with n no power of two the odd ranks of the first
/// pairs hand their vector to their even neighbour and get the result from it.
[[nodiscard]] result<algorithm> recursive_doubling_all_reduce(rank_t ranks);

/// How an owner folds the contributions to its slice, always in rank order.
enum class fold_style : std::uint8_t {
  staged,    ///< every peer's part goes to scratch as it arrives: peers never wait for their turn
  streamed,  ///< parts are reduced as they are taken off the wire, lowest rank first: no scratch but one
             ///< slice
};
[[nodiscard]] std::string_view name_of(fold_style fold) noexcept;

/// Where an owner's running fold lives.
enum class partial_sums : std::uint8_t {
  in_output,        ///< as elements, where the result goes
  in_accumulators,  ///< in scratch that lowering widens (see plan.hpp); rounded once, at the end
};

/// Rank r owns slice r: everyone sends its part there, r folds and sends the result to everyone.
[[nodiscard]] result<algorithm> slice_owner_all_reduce(rank_t ranks, fold_style fold = fold_style::staged,
                                                       partial_sums sums = partial_sums::in_output);
[[nodiscard]] result<algorithm> slice_owner_reduce_scatter(rank_t ranks, fold_style fold = fold_style::staged,
                                                           partial_sums sums = partial_sums::in_output);
/// As above, but the results go to the root alone; sums are always in accumulators.
[[nodiscard]] result<algorithm> slice_owner_reduce(rank_t ranks, rank_t root,
                                                   fold_style fold = fold_style::staged);
/// Up the ranks to the sum and back down: for vectors long enough to be cut into many more pieces than ranks.
[[nodiscard]] result<algorithm> chain_all_reduce(rank_t ranks);

/// Up the ranks, and from the last one to the root: the left fold for every root.
[[nodiscard]] result<algorithm> chain_reduce(rank_t ranks, rank_t root);
/// From the root up the ranks and around.
[[nodiscard]] result<algorithm> chain_broadcast(rank_t ranks, rank_t root);
[[nodiscard]] result<algorithm> chain_scan(rank_t ranks);
[[nodiscard]] result<algorithm> chain_exscan(rank_t ranks);

[[nodiscard]] result<algorithm> binomial_broadcast(rank_t ranks, rank_t root);
[[nodiscard]] result<algorithm> binomial_reduce(rank_t ranks, rank_t root);

/// Straight from whoever has a share to whoever wants it.
[[nodiscard]] result<algorithm> direct_all_gather(rank_t ranks);
[[nodiscard]] result<algorithm> direct_gather(rank_t ranks, rank_t root);
[[nodiscard]] result<algorithm> direct_scatter(rank_t ranks, rank_t root);
[[nodiscard]] result<algorithm> direct_all_to_all(rank_t ranks);

}  // namespace chorale::schedule
