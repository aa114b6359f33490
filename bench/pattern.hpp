// Elements whose reductions are known: what each rank puts into its input, and what must come out.
//
// Values are small integers, hashed from rank and index so that elements at a wrong place or from a wrong
// rank show, and chosen per type and operation so that the result is exact in any order of combination. Where
// ranks are too many for that in a narrow float, results are compared within its rounding.
#pragma once

#include "collectives.hpp"

#include <cstddef>
#include <cstdint>

namespace chorale::bench {

class pattern {
 public:
  pattern(dtype type, reduction op, rank_t ranks) noexcept;

  /// Element `index` of a rank's input.
  [[nodiscard]] double value(rank_t rank, std::uint64_t index) const noexcept;
  /// What the contributors' elements make.
  [[nodiscard]] double result(const contribution& of) const noexcept;
  /// How far a right result may be from it.
  [[nodiscard]] double tolerance(double right) const noexcept;

  void fill(std::byte* in, std::uint64_t count, rank_t rank) const;
  /// How many of the elements of a rank's output are not what the collective makes. Elements to which nobody
  /// contributes are not looked at.
  [[nodiscard]] std::uint64_t count_wrong(const benched_collective& what, const place& at,
                                          const std::byte* out, std::uint64_t count) const;

 private:
  [[nodiscard]] double combine(double left, double right) const noexcept;
  dtype type_;
  reduction op_;
  rank_t ranks_;
  std::uint64_t mask_;  // of the hash
  double rounding_;     // relative, of a whole reduction; 0: exact
};

}  // namespace chorale::bench
