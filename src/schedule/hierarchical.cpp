// All_reduce over hosts whose ranks are near each other: every host folds the vector in slices, one per local
// rank; the owners of a slice reduce it among the hosts; then each owner hands its slice around its host.
// With hosts of unequal size there are as many slices as the smallest host has ranks, and the rest own none.

#include <chorale/schedule/generators.hpp>
#include <chorale/schedule/nesting.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

namespace chorale::schedule {
namespace {

/// The ranks of each host, in rank order; hosts in the order of their first rank.
using host_list = std::vector<std::vector<rank_t>>;

host_list hosts_of(std::span<const std::uint32_t> host_of) {
  host_list hosts;
  std::map<std::uint32_t, std::size_t> known;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto [found, added] = known.try_emplace(host_of[rank], hosts.size());
    if (added) hosts.emplace_back();
    hosts[found->second].push_back(static_cast<rank_t>(rank));
  }
  return hosts;
}

/// What all ranks' programs are made from.
struct levels {
  host_list hosts;
  std::uint32_t slices;
  partial_sums sums;
  algorithm across;  ///< among the owners of a slice
  [[nodiscard]] std::uint32_t blocks_per_slice() const { return across.what().blocks; }
};

class hierarchy_steps {
 public:
  hierarchy_steps(const levels& all, rank_t rank) : all_{all} {
    for (host_ = 0;; ++host_) {
      const auto& ranks = all.hosts[host_];
      const auto found = std::find(ranks.begin(), ranks.end(), rank);
      if (found == ranks.end()) continue;
      local_ = static_cast<std::uint32_t>(found - ranks.begin());
      break;
    }
    done_.resize(all.slices);
  }

  rank_program program() && {
    for_each_slice([this](std::uint32_t slice) { fold_inside(slice); });
    if (local_ < all_.slices) reduce_across();
    for_each_slice([this](std::uint32_t slice) { hand_around(slice); });
    return std::move(program_);
  }

 private:
  /// Beginning with the next rank's, so that no owner is everyone's first target.
  template <class Visit>
  void for_each_slice(Visit visit) const {
    for (std::uint32_t i = 1; i <= all_.slices; ++i) visit((local_ + i) % all_.slices);
  }
  [[nodiscard]] const std::vector<rank_t>& mates() const { return all_.hosts[host_]; }
  [[nodiscard]] rank_t local_ranks() const { return static_cast<rank_t>(mates().size()); }
  [[nodiscard]] block_ref block_of(space where, std::uint32_t slice, std::uint32_t b) const {
    return {where, slice * all_.blocks_per_slice() + b, 1};
  }

  void fold_inside(std::uint32_t slice) {
    const auto fold =
        direct_reduce(local_ranks(), static_cast<rank_t>(slice), fold_style::streamed, all_.sums);
    const rank_program inner = fold->program(static_cast<rank_t>(local_));
    for (std::uint32_t b = 0; b < all_.blocks_per_slice(); ++b) {
      const block_ref in = block_of(space::in, slice, b);
      const block_ref out = block_of(space::out, slice, b);
      const auto ends = add_nested(program_, inner, {.ranks = mates(), .in = {&in, 1}, .out = {&out, 1}});
      done_[slice].insert(done_[slice].end(), ends.begin(), ends.end());
    }
  }

  void reduce_across() {
    std::vector<rank_t> owners;
    for (const auto& host : all_.hosts) owners.push_back(host[local_]);
    std::vector<block_ref> blocks;
    for (std::uint32_t b = 0; b < all_.blocks_per_slice(); ++b)
      blocks.push_back(block_of(space::out, local_, b));
    done_[local_] = add_nested(program_, all_.across.program(static_cast<rank_t>(host_)),
                               {.ranks = owners, .in = blocks, .out = blocks, .after = done_[local_]});
  }

  void hand_around(std::uint32_t slice) {
    const auto broadcast = direct_broadcast(local_ranks(), static_cast<rank_t>(slice));
    const rank_program inner = broadcast->program(static_cast<rank_t>(local_));
    for (std::uint32_t b = 0; b < all_.blocks_per_slice(); ++b) {
      const block_ref out = block_of(space::out, slice, b);
      add_nested(program_, inner,
                 {.ranks = mates(), .in = {&out, 1}, .out = {&out, 1}, .after = done_[slice]});
    }
  }

  const levels& all_;
  std::size_t host_ = 0;
  std::uint32_t local_ = 0;
  rank_program program_;
  std::vector<std::vector<step_index>> done_;  ///< by slice, what to wait for before its result may land
};

result<algorithm> make_across(across_hosts how, rank_t hosts, partial_sums sums) {
  switch (how) {
    case across_hosts::ring:
      return ring_all_reduce(hosts);
    case across_hosts::recursive_doubling:
      return recursive_doubling_all_reduce(hosts);
    case across_hosts::slice_owner:
      return slice_owner_all_reduce(hosts, fold_style::streamed, sums);
  }
  return error{errc::invalid_argument, "hierarchical: unknown algorithm among hosts"};
}

}  // namespace

result<algorithm> hierarchical_all_reduce(std::span<const std::uint32_t> host_of, across_hosts how,
                                          partial_sums sums) {
  if (host_of.empty())
    return error{errc::invalid_argument, "hierarchical over 0 ranks: name the host of at least one"};
  host_list hosts = hosts_of(host_of);
  auto across = make_across(how, static_cast<rank_t>(hosts.size()), sums);
  if (!across) return across.error();
  const std::size_t smallest =
      std::ranges::min(hosts, {}, [](const auto& host) { return host.size(); }).size();
  const std::string name = "hierarchical, " + std::to_string(hosts.size()) + " hosts, " + across->name();
  const auto slices = static_cast<std::uint32_t>(smallest);
  const definition meaning{.what = collective::all_reduce,
                           .ranks = static_cast<rank_t>(host_of.size()),
                           .blocks = slices * across->what().blocks};
  const auto all = std::make_shared<const levels>(levels{std::move(hosts), slices, sums, std::move(*across)});
  return algorithm{name,
                   meaning,
                   [all](rank_t rank) { return hierarchy_steps{*all, rank}.program(); },
                   placement_support::both,
                   step_unit::block,
                   share_lengths::each_end_knows};
}

}  // namespace chorale::schedule
