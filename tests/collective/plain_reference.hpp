// What every collective computes, written as plainly as possible: no schedules, no messages, numbers in f64
// and integers modulo 2^64. Everything the random tests compare with.
#pragma once

#include <chorale/collective/call.hpp>
#include <chorale/kernels/small_float.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace chorale::testing {

/// One collective among `ranks`: what every rank calls, and what every rank puts in.
struct plain_case {
  collective_kind kind = collective_kind::none;
  dtype type = dtype::none;
  reduction op = reduction::none;
  rank_t ranks = 1;
  rank_t root = 0;
  std::uint64_t count = 0;                        ///< of the vector or of one share
  std::vector<std::uint64_t> counts;              ///< forms with one vector of counts
  std::vector<std::vector<std::uint64_t>> pairs;  ///< all_to_all_v: [from][to]
  std::vector<double> factors;                    ///< premul_sum: by rank
  std::vector<std::vector<std::byte>> in;         ///< by rank; empty where none is read

  [[nodiscard]] std::uint64_t in_count(rank_t r) const;
  [[nodiscard]] std::uint64_t out_count(rank_t r) const;
  [[nodiscard]] bool reads(rank_t r) const;
  [[nodiscard]] bool writes(rank_t r) const;
  /// In place, elements before the smaller buffer inside the larger.
  [[nodiscard]] std::uint64_t share_begins(rank_t r) const;
  [[nodiscard]] std::string text() const;
};

[[nodiscard]] bool is_float(dtype type) noexcept;
[[nodiscard]] double as_double(dtype type, const std::byte* element);
[[nodiscard]] std::uint64_t as_bits(dtype type, const std::byte* element);
void store(dtype type, std::byte* element, double value);
void store_bits(dtype type, std::byte* element, std::uint64_t bits);
/// u16 a, b: the map x → a·x + b, composed. Associative, and nothing changes sides.
void compose(void* context, std::byte* out, const std::byte* left, const std::byte* right,
             std::size_t count) noexcept;

/// How exactly an algorithm that folds in the elements' own type, or in f32, must have met the reference.
enum class folds { in_elements, in_f32, from_the_left_in_f32 };

/// Whether `out` is what rank `r` must hold; else what is wrong with it.
[[nodiscard]] std::string complaint(const plain_case& c, rank_t r, const std::byte* out, folds how);

}  // namespace chorale::testing
