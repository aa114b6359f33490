// The schedules chorale writes itself. Each is correct for every number of ranks and every root, in place and
// out of place; the checker's tests hold that. Arguments out of range give errc::invalid_argument, nothing
// else can fail.
//
// What a call costs the busiest of n ranks, in the messages it sends and the bytes they hold, and the
// expression of a reduction. S is the larger of a rank's two buffers. "Depth" counts messages that follow
// each other; long vectors are cut into pieces, which hides depth but for algorithms marked "whole".
//
//                            messages     bytes          depth           expression
//  all_reduce
//   ring                     2(n - 1)     2S(n - 1)/n    2(n - 1)        one chain per block
//   recursive doubling       log n        S log n        log n           a tree over neighbours in rank order
//   recursive halving whole  2 log n      2S(n - 1)/n    2 log n         a tree over neighbours in rank order
//   slice owner              2(n - 1)     2S(n - 1)/n    2               the left fold
//   chain                    2            2S             2(n - 1)        the left fold
//   double binary tree       4            2S             2 log n         a tree per half
//   hierarchical             inside a host as slice owner, among hosts as chosen
//  reduce
//   binomial tree            1            S              log n           a tree, the lower rank on the left
//   chain                    1            S              n               the left fold
//   direct                   1            S              1, n at root    the left fold
//   slice owner              n            S              2               the left fold
//   double binary tree       2            S              log n           a tree per half
//  broadcast
//   direct                   n - 1        S(n - 1)       1
//   binomial tree            log n        S log n        log n
//   chain                    1            S              n - 1
//   double binary tree       2            S              log n
//  reduce_scatter
//   ring                     n - 1        S(n - 1)/n     n - 1           one chain per block
//   recursive halving whole  log n        S(n - 1)/n     log n           a tree, the lower rank on the left
//   slice owner              n - 1        S(n - 1)/n     1               the left fold
//  all_gather
//   ring                     n - 1        S(n - 1)/n     n - 1
//   direct                   n - 1        S(n - 1)/n     1
//   recursive doubling whole log n        S(n - 1)/n     log n
//   Bruck whole              up to 2log n S(n - 1)/n     log n
//  gather, scatter
//   direct                   n - 1        S(n - 1)/n     1
//   binomial tree whole      log n        S(n - 1)/n     log n
//  all_to_all
//   direct                   n - 1        S(n - 1)/n     1
//   Bruck whole              log n        S/2 log n      log n
//  scan, exscan
//   chain                    1            S              n - 1           the left fold
//   recursive doubling       log n        S log n        log n           neighbours in rank order
//   direct                   n - 1        S(n - 1)       1               the left fold
//
// Where n is no power of two, log n is rounded up, and recursive halving and doubling among partners cost the
// ranks beyond the power and their neighbours up to one message of S more each way. Rings need edges that
// hold two messages (see checker.hpp), all others one. A ring channel keeps one message per rank moving: two
// channels let a rank receive the next while it sends the last. Which algorithms take shares of unequal
// length: algorithm::lengths().
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/schedule/schedule.hpp>

#include <cstdint>
#include <span>
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
/// Everyone sends its vector to the root, which folds. For short vectors and few ranks.
[[nodiscard]] result<algorithm> direct_reduce(rank_t ranks, rank_t root,
                                              fold_style fold = fold_style::streamed,
                                              partial_sums sums = partial_sums::in_output);

/// Up the ranks to the sum and back down: for vectors long enough to be cut into many more pieces than ranks.
[[nodiscard]] result<algorithm> chain_all_reduce(rank_t ranks);
/// Up the ranks, and from the last one to the root: the left fold for every root.
[[nodiscard]] result<algorithm> chain_reduce(rank_t ranks, rank_t root);
/// From the root up the ranks and around.
[[nodiscard]] result<algorithm> chain_broadcast(rank_t ranks, rank_t root);
[[nodiscard]] result<algorithm> chain_scan(rank_t ranks);
[[nodiscard]] result<algorithm> chain_exscan(rank_t ranks);

/// Subtrees are runs of ranks, counted from the root upwards and around.
[[nodiscard]] result<algorithm> binomial_broadcast(rank_t ranks, rank_t root);
[[nodiscard]] result<algorithm> binomial_reduce(rank_t ranks, rank_t root);
[[nodiscard]] result<algorithm> binomial_gather(rank_t ranks, rank_t root);
[[nodiscard]] result<algorithm> binomial_scatter(rank_t ranks, rank_t root);

/// Two trees, each for half of the vector; who has children in one has none in the other.
[[nodiscard]] result<algorithm> double_tree_all_reduce(rank_t ranks);
[[nodiscard]] result<algorithm> double_tree_broadcast(rank_t ranks, rank_t root);
[[nodiscard]] result<algorithm> double_tree_reduce(rank_t ranks, rank_t root);

/// Halves between partners at distance 1, 2, 4 …, reduced on the way there and gathered on the way back.
/// Moves runs of blocks: not in pieces.
[[nodiscard]] result<algorithm> recursive_halving_all_reduce(rank_t ranks);
[[nodiscard]] result<algorithm> recursive_halving_reduce_scatter(rank_t ranks);
[[nodiscard]] result<algorithm> recursive_doubling_all_gather(rank_t ranks);

/// Any number of ranks in ⌈log2 n⌉ rounds. All_to_all packs the shares of a round into one message.
[[nodiscard]] result<algorithm> bruck_all_gather(rank_t ranks);
[[nodiscard]] result<algorithm> bruck_all_to_all(rank_t ranks);

[[nodiscard]] result<algorithm> recursive_doubling_scan(rank_t ranks);
[[nodiscard]] result<algorithm> recursive_doubling_exscan(rank_t ranks);
/// Everyone sends its vector to all ranks above, and folds those from below in accumulators.
[[nodiscard]] result<algorithm> direct_scan(rank_t ranks, fold_style fold = fold_style::staged);
[[nodiscard]] result<algorithm> direct_exscan(rank_t ranks, fold_style fold = fold_style::staged);

/// Straight from whoever has a share to whoever wants it.
[[nodiscard]] result<algorithm> direct_broadcast(rank_t ranks, rank_t root);
[[nodiscard]] result<algorithm> direct_all_gather(rank_t ranks);
[[nodiscard]] result<algorithm> direct_gather(rank_t ranks, rank_t root);
[[nodiscard]] result<algorithm> direct_scatter(rank_t ranks, rank_t root);
[[nodiscard]] result<algorithm> direct_all_to_all(rank_t ranks);

/// How the owners of a slice reduce it among hosts.
enum class across_hosts : std::uint8_t { ring, recursive_doubling, slice_owner };
/// `host_of` names the host of every rank, by any numbers. Inside a host every rank owns a slice (as many as
/// the smallest host has ranks); its owners on all hosts reduce it among themselves. `sums`: inside a host,
/// and among hosts if they are slice owners too.
[[nodiscard]] result<algorithm> hierarchical_all_reduce(std::span<const std::uint32_t> host_of,
                                                        across_hosts how = across_hosts::ring,
                                                        partial_sums sums = partial_sums::in_output);

}  // namespace chorale::schedule
