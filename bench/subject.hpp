// One collective with its count, type, operation and root: what a meter or a peer program measures, and what
// memory a rank needs for it.
#pragma once

#include "collectives.hpp"

#include <cstddef>
#include <cstdint>

namespace chorale::bench {

struct subject {
  const benched_collective* what = nullptr;
  std::uint64_t count = 0;  ///< elements of one share, or of the whole
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  rank_t root = 0;
  bool in_place = false;

  [[nodiscard]] bool is_exchange() const noexcept { return what->kind == collective_kind::message; }
};

/// A rank's place in it, for a collective's definition.
[[nodiscard]] inline place place_of(const subject& s, rank_t rank, rank_t ranks) noexcept {
  return {rank, ranks, s.root, s.count};
}

/// The rank's call, without memory: `in_count` and `out_count` say what it reads and writes.
/// A sendrecv is two calls, of which this is the sending or the receiving one.
enum class half { sending, receiving };
[[nodiscard]] call call_of(const subject& s, rank_t rank, rank_t ranks, half part = half::sending) noexcept;

/// Elements that the rank gets, whichever call writes them.
[[nodiscard]] std::uint64_t output_count(const subject& s, rank_t rank, rank_t ranks) noexcept;

}  // namespace chorale::bench
