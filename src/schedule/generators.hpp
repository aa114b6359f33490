// The schedules chorale writes itself. Each is correct for every number of ranks, in place and out of place;
// the checker's tests hold that. Arguments out of range give errc::invalid_argument, nothing else can fail.
//
// | generator          | messages per rank | bytes sent per rank | expression                              |
// |--------------------|-------------------|---------------------|-----------------------------------------|
// | ring               | 2(n − 1) per chan.| 2(n − 1)/n · size   | one chain per block, computed once      |
// | recursive doubling | ⌈log2 n⌉ to +2    | ⌈log2 n⌉ to +1 · size | one tree over neighbours, in rank order
// | | slice owner        | 2(n − 1)          | 2(n − 1)/n · size   | left fold in rank order |
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

/// Rank r owns slice r: everyone sends its part there, r folds and sends the result to everyone.
[[nodiscard]] result<algorithm> slice_owner_all_reduce(rank_t ranks, fold_style fold = fold_style::staged);
[[nodiscard]] result<algorithm> slice_owner_reduce_scatter(rank_t ranks,
                                                           fold_style fold = fold_style::staged);
/// Everyone sends its share to everyone.
[[nodiscard]] result<algorithm> direct_all_gather(rank_t ranks);

}  // namespace chorale::schedule
