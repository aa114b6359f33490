// The collectives that `chorale bench` knows, one row each: which call it is, how a size in bytes becomes a
// count, what its bus bandwidth is, and what each element of its result is made of.
//
// To add one: a row in collectives.cpp.
#pragma once

#include <chorale/collective/call.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace chorale::bench {

/// Who contributes to one element of a rank's output, and which of their input elements: the ranks from
/// `first` to below `end`. None: the element is left as it was.
struct contribution {
  rank_t first = 0;
  rank_t end = 0;
  std::uint64_t index = 0;
};

/// Where a contribution is asked for. `count` is the call's: elements of one share where there are shares.
struct place {
  rank_t rank = 0;
  rank_t ranks = 1;
  rank_t root = 0;
  std::uint64_t count = 0;
};

struct benched_collective {
  std::string_view name;
  std::string_view summary;
  collective_kind kind;
  /// The size is that of all ranks' shares together, as in nccl-tests.
  bool has_shares;
  bool has_in_place_form;
  /// Bus bandwidth over algorithm bandwidth, for n ranks, as in nccl-tests; 1 for what it does not know.
  double (*bus_factor)(double n);
  contribution (*made_of)(const place& at, std::uint64_t element);
};

[[nodiscard]] std::span<const benched_collective> benched_collectives() noexcept;
/// Null when there is none of that name.
[[nodiscard]] const benched_collective* find_collective(std::string_view name) noexcept;

/// Elements of one share, or of the whole: at least one, so that the smallest sizes grow with the ranks.
[[nodiscard]] std::uint64_t count_for(const benched_collective& what, std::uint64_t bytes, dtype type,
                                      rank_t ranks) noexcept;
/// The size that this count is.
[[nodiscard]] std::uint64_t bytes_of(const benched_collective& what, std::uint64_t count, dtype type,
                                     rank_t ranks) noexcept;

}  // namespace chorale::bench
