// What a collective means, block by block: the only thing the checker knows, and what generators must meet.
//
// A buffer is cut into blocks. The *unit* of a collective is cut into `blocks` of them: the whole vector for
// all_reduce, reduce, broadcast and the scans; one rank's share for the others, whose larger buffer is
// `ranks` shares one after another. Every output block of every rank is the reduction of one input block over
// a run of ranks; a run of one rank is a plain copy. Values only: nothing here owns, blocks or fails.
#pragma once

#include <chorale/async/error.hpp>

#include <cstdint>
#include <string_view>

namespace chorale::schedule {

enum class collective : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  scan,
  exscan,  ///< rank r gets what ranks 0 … r − 1 make; rank 0's output is nobody's business
};
[[nodiscard]] std::string_view name_of(collective what) noexcept;

/// Whether input and output share memory in the collective's usual in-place form.
enum class placement : std::uint8_t { out_of_place, in_place };

/// The contributions one output block must hold: block `block` of the inputs of ranks first … last − 1, each
/// once. An empty run: the block is none of the collective's business and may hold anything.
struct requirement {
  rank_t first = 0;
  rank_t last = 0;
  std::uint32_t block = 0;
  friend bool operator==(const requirement&, const requirement&) = default;
};

/// What decides the length of a block when shares differ: the input block `block` of rank `rank`, or of any
/// rank (no_rank) where all ranks' inputs are cut alike.
struct block_length {
  std::uint32_t block = 0;
  rank_t rank = no_rank;
  bool known = true;  ///< to a rank that is told its own lengths only
};

struct definition {
  collective what = collective::all_reduce;
  rank_t ranks = 1;
  std::uint32_t blocks = 1;  ///< blocks in one unit
  rank_t root = 0;           ///< read by rooted collectives only

  [[nodiscard]] std::uint32_t in_blocks() const noexcept;
  [[nodiscard]] std::uint32_t out_blocks() const noexcept;
  /// Scatter's input at the root, say: other ranks have no input buffer to read.
  [[nodiscard]] bool reads_input(rank_t rank) const noexcept;
  /// Gather's output at the root, say: other ranks have no output buffer to write.
  [[nodiscard]] bool writes_output(rank_t rank) const noexcept;
  [[nodiscard]] requirement required(rank_t rank, std::uint32_t out_block) const noexcept;

  /// Of block `block` of the input, or of the output, at `rank`.
  [[nodiscard]] block_length length_of_input(rank_t rank, std::uint32_t block) const noexcept;
  [[nodiscard]] block_length length_of_output(rank_t rank, std::uint32_t block) const noexcept;

  /// In place, input and output are views of one buffer: where (in blocks) each view starts at `rank`.
  [[nodiscard]] std::uint32_t in_place_input(rank_t rank) const noexcept;
  [[nodiscard]] std::uint32_t in_place_output(rank_t rank) const noexcept;
};

}  // namespace chorale::schedule
