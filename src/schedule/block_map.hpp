// Where the blocks of one rank's buffers lie, in elements: the table that turns a schedule into a plan.
//
// `even` cuts the unit of a collective (see definition.hpp) into blocks as equal as the grain allows; blocks
// may be empty, and ranks that agree on count and grain agree on every block. `from_tables` takes explicit
// extents, for the v-forms. Offsets are 64-bit: buffers may exceed 4 GiB. Plain values, owned by the caller.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/schedule/definition.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace chorale::schedule {

struct extent {
  std::uint64_t offset = 0;  ///< elements from the start of the buffer
  std::uint64_t length = 0;  ///< elements
  friend bool operator==(const extent&, const extent&) = default;
};

class block_map {
 public:
  /// `count`: elements in the unit. Blocks begin at multiples of `grain` ≥ 1 elements; the last non-empty one
  /// takes what is left.
  [[nodiscard]] static block_map even(const definition& what, std::uint64_t count, std::uint64_t grain = 1);
  /// One extent per block, as many as the definition has; peers' tables must agree on message sizes.
  [[nodiscard]] static result<block_map> from_tables(const definition& what, std::vector<extent> in,
                                                     std::vector<extent> out);

  [[nodiscard]] std::span<const extent> in() const noexcept { return in_; }
  [[nodiscard]] std::span<const extent> out() const noexcept { return out_; }

 private:
  block_map(std::vector<extent> in, std::vector<extent> out) : in_{std::move(in)}, out_{std::move(out)} {}
  std::vector<extent> in_;
  std::vector<extent> out_;
};

}  // namespace chorale::schedule
