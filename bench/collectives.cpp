#include "collectives.hpp"

#include <algorithm>

namespace chorale::bench {
namespace {

double whole(double) { return 1; }
double all_but_own(double n) { return (n - 1) / n; }
double twice_all_but_own(double n) { return 2 * (n - 1) / n; }

contribution everybody(const place& at, std::uint64_t i) { return {0, at.ranks, i}; }
contribution everybody_for_root(const place& at, std::uint64_t i) {
  return at.rank == at.root ? everybody(at, i) : contribution{};
}
contribution root_whole(const place& at, std::uint64_t i) { return {at.root, at.root + 1, i}; }
contribution share_by_share(const place& at, std::uint64_t i) {
  const auto owner = static_cast<rank_t>(i / at.count);
  return {owner, owner + 1, i % at.count};
}
contribution shares_for_root(const place& at, std::uint64_t i) {
  return at.rank == at.root ? share_by_share(at, i) : contribution{};
}
std::uint64_t in_own_share(const place& at, std::uint64_t i) {
  return static_cast<std::uint64_t>(at.rank) * at.count + i;
}
contribution everybodys_share_for_me(const place& at, std::uint64_t i) {
  return {0, at.ranks, in_own_share(at, i)};
}
contribution roots_share_for_me(const place& at, std::uint64_t i) {
  return {at.root, at.root + 1, in_own_share(at, i)};
}
contribution exchanged(const place& at, std::uint64_t i) {
  const auto owner = static_cast<rank_t>(i / at.count);
  return {owner, owner + 1, in_own_share(at, i % at.count)};
}
contribution up_to_me(const place& at, std::uint64_t i) { return {0, at.rank + 1, i}; }
contribution before_me(const place& at, std::uint64_t i) { return {0, at.rank, i}; }
contribution left_neighbour(const place& at, std::uint64_t i) {
  const rank_t left = (at.rank + at.ranks - 1) % at.ranks;
  return {left, left + 1, i};
}
contribution nothing(const place&, std::uint64_t) { return {}; }

using kind = collective_kind;
constexpr benched_collective rows[] = {
    {"all_reduce", "What all ranks' elements make, everywhere", kind::all_reduce, false, true,
     twice_all_but_own, everybody},
    {"reduce", "The same at the root only", kind::reduce, false, true, whole, everybody_for_root},
    {"broadcast", "The root's elements everywhere", kind::broadcast, false, true, whole, root_whole},
    {"all_gather", "Every rank's share, everywhere", kind::all_gather, true, true, all_but_own,
     share_by_share},
    {"reduce_scatter", "What all ranks' elements make, a share each", kind::reduce_scatter, true, true,
     all_but_own, everybodys_share_for_me},
    {"all_to_all", "A share from each rank to each", kind::all_to_all, true, false, all_but_own, exchanged},
    {"gather", "Every rank's share at the root", kind::gather, true, true, all_but_own, shares_for_root},
    {"scatter", "The root's shares, one to each rank", kind::scatter, true, true, all_but_own,
     roots_share_for_me},
    {"scan", "What the elements of ranks up to the own make", kind::scan, false, true, whole, up_to_me},
    {"exscan", "The same without the own", kind::exscan, false, true, whole, before_me},
    {"sendrecv", "To the right neighbour, from the left one", kind::message, false, false, whole,
     left_neighbour},
    {"barrier", "Until all have come", kind::barrier, false, false, whole, nothing},
};

}  // namespace

std::span<const benched_collective> benched_collectives() noexcept { return rows; }

const benched_collective* find_collective(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(rows, name, &benched_collective::name);
  return found == std::end(rows) ? nullptr : found;
}

std::uint64_t count_for(const benched_collective& what, std::uint64_t bytes, dtype type,
                        rank_t ranks) noexcept {
  if (what.kind == kind::barrier) return 0;
  const std::uint64_t unit = size_of(type) * (what.has_shares ? static_cast<std::uint64_t>(ranks) : 1);
  return std::max<std::uint64_t>(1, bytes / unit);
}

std::uint64_t bytes_of(const benched_collective& what, std::uint64_t count, dtype type,
                       rank_t ranks) noexcept {
  return count * size_of(type) * (what.has_shares ? static_cast<std::uint64_t>(ranks) : 1);
}

}  // namespace chorale::bench
