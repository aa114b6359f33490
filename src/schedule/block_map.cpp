#include <chorale/schedule/block_map.hpp>

#include <algorithm>
#include <string>

namespace chorale::schedule {
namespace {

/// `blocks` extents per unit, one unit after another.
std::vector<extent> cut(std::uint32_t blocks_in_unit, std::uint32_t blocks, std::uint64_t count,
                        std::uint64_t grain) {
  const std::uint64_t grains = count / grain + (count % grain != 0 ? 1 : 0);
  const std::uint64_t each = grains / blocks_in_unit;
  const std::uint64_t longer = grains % blocks_in_unit;
  const auto begin = [&](std::uint64_t block) {
    const std::uint64_t first_grain = block * each + std::min(block, longer);
    return first_grain >= grains ? count : first_grain * grain;
  };
  std::vector<extent> table;
  table.reserve(blocks);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const std::uint64_t unit = block / blocks_in_unit;
    const std::uint64_t inside = block % blocks_in_unit;
    table.push_back({unit * count + begin(inside), begin(inside + 1) - begin(inside)});
  }
  return table;
}

}  // namespace

block_map block_map::even(const definition& what, std::uint64_t count, std::uint64_t grain) {
  grain = std::max<std::uint64_t>(grain, 1);
  return {cut(what.blocks, what.in_blocks(), count, grain),
          cut(what.blocks, what.out_blocks(), count, grain)};
}

result<block_map> block_map::from_tables(const definition& what, std::vector<extent> in,
                                         std::vector<extent> out) {
  if (in.size() != what.in_blocks() || out.size() != what.out_blocks())
    return error{errc::invalid_argument, "block tables with " + std::to_string(in.size()) + " input and " +
                                             std::to_string(out.size()) + " output blocks for " +
                                             std::string{name_of(what.what)} + ": give " +
                                             std::to_string(what.in_blocks()) + " and " +
                                             std::to_string(what.out_blocks())};
  return block_map{std::move(in), std::move(out)};
}

}  // namespace chorale::schedule
