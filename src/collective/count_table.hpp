// How many elements each rank has in the forms of a collective whose shares differ (all_gather_v and others).
//
// Shares lie one behind the other in rank order. Immutable once made; a call and whoever compares late
// arrivals with it share one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace chorale {

struct count_table {
  std::vector<std::uint64_t> counts;    ///< of each rank; all_to_all_v: what goes to each rank
  std::vector<std::uint64_t> arriving;  ///< all_to_all_v only: what comes from each rank
  std::uint64_t total = 0;              ///< all ones where a sum leaves 64 bits
  std::uint64_t total_arriving = 0;
  std::uint64_t hash = 0;

  /// Elements before the share of `rank`.
  [[nodiscard]] static std::uint64_t before(std::span<const std::uint64_t> counts,
                                            std::size_t rank) noexcept {
    std::uint64_t sum = 0;
    for (std::size_t r = 0; r < rank; ++r) sum += counts[r];
    return sum;
  }
  [[nodiscard]] bool same_as(const count_table& other) const noexcept {
    return hash == other.hash && counts == other.counts && arriving == other.arriving;
  }
};

[[nodiscard]] std::shared_ptr<const count_table> make_count_table(
    std::span<const std::uint64_t> counts, std::span<const std::uint64_t> arriving = {});

}  // namespace chorale
