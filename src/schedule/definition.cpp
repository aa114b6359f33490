#include <chorale/schedule/definition.hpp>

namespace chorale::schedule {

std::string_view name_of(collective what) noexcept {
  switch (what) {
    case collective::all_reduce:
      return "all_reduce";
    case collective::reduce:
      return "reduce";
    case collective::broadcast:
      return "broadcast";
    case collective::all_gather:
      return "all_gather";
    case collective::reduce_scatter:
      return "reduce_scatter";
    case collective::all_to_all:
      return "all_to_all";
    case collective::gather:
      return "gather";
    case collective::scatter:
      return "scatter";
    case collective::scan:
      return "scan";
    case collective::exscan:
      return "exscan";
  }
  return "unknown collective";
}

std::uint32_t definition::in_blocks() const noexcept {
  switch (what) {
    case collective::reduce_scatter:
    case collective::all_to_all:
    case collective::scatter:
      return blocks * static_cast<std::uint32_t>(ranks);
    default:
      return blocks;
  }
}

std::uint32_t definition::out_blocks() const noexcept {
  switch (what) {
    case collective::all_gather:
    case collective::all_to_all:
    case collective::gather:
      return blocks * static_cast<std::uint32_t>(ranks);
    default:
      return blocks;
  }
}

bool definition::reads_input(rank_t rank) const noexcept {
  return rank == root || (what != collective::broadcast && what != collective::scatter);
}

bool definition::writes_output(rank_t rank) const noexcept {
  if (what == collective::exscan) return rank != 0;
  return rank == root || (what != collective::reduce && what != collective::gather);
}

requirement definition::required(rank_t rank, std::uint32_t out_block) const noexcept {
  const std::uint32_t in_share = out_block % blocks;
  const auto share = static_cast<rank_t>(out_block / blocks);
  const std::uint32_t my_share = static_cast<std::uint32_t>(rank) * blocks;
  switch (what) {
    case collective::all_reduce:
      return {0, ranks, out_block};
    case collective::reduce:
      return rank == root ? requirement{0, ranks, out_block} : requirement{};
    case collective::broadcast:
      return {root, root + 1, out_block};
    case collective::all_gather:
      return {share, share + 1, in_share};
    case collective::reduce_scatter:
      return {0, ranks, my_share + out_block};
    case collective::all_to_all:
      return {share, share + 1, my_share + in_share};
    case collective::gather:
      return rank == root ? requirement{share, share + 1, in_share} : requirement{};
    case collective::scatter:
      return {root, root + 1, my_share + out_block};
    case collective::scan:
      return {0, rank + 1, out_block};
    case collective::exscan:
      return {0, rank, out_block};
  }
  return {};
}

block_length definition::length_of_input(rank_t rank, std::uint32_t block) const noexcept {
  switch (what) {
    case collective::all_gather:
    case collective::all_to_all:
    case collective::gather:
      return {block, rank, true};
    case collective::scatter:
      return {block, no_rank, reads_input(rank) || block / blocks == static_cast<std::uint32_t>(rank)};
    default:
      return {block, no_rank, true};
  }
}

block_length definition::length_of_output(rank_t rank, std::uint32_t block) const noexcept {
  const std::uint32_t my_share = static_cast<std::uint32_t>(rank) * blocks;
  const auto share = static_cast<rank_t>(block / blocks);
  switch (what) {
    case collective::all_gather:
      return {block % blocks, share, true};
    case collective::all_to_all:
      return {my_share + block % blocks, share, true};
    case collective::gather:
      return {block % blocks, share, writes_output(rank) || share == rank};
    case collective::scatter:
    case collective::reduce_scatter:
      return {my_share + block, no_rank, true};
    default:
      return {block, no_rank, true};
  }
}

std::uint32_t definition::in_place_input(rank_t rank) const noexcept {
  const bool inside_output = what == collective::all_gather || (what == collective::gather && rank == root);
  return inside_output ? static_cast<std::uint32_t>(rank) * blocks : 0;
}

std::uint32_t definition::in_place_output(rank_t rank) const noexcept {
  const bool inside_input =
      what == collective::reduce_scatter || (what == collective::scatter && rank == root);
  return inside_input ? static_cast<std::uint32_t>(rank) * blocks : 0;
}

}  // namespace chorale::schedule
