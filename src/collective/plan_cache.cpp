#include <chorale/collective/plan_cache.hpp>
#include <chorale/schedule/generators.hpp>
#include <chorale/schedule/lowering.hpp>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

namespace chorale {
namespace {

using schedule::block_map;
using schedule::extent;

/// From here on messages are cut, so that a piece is forwarded while the next arrives.
constexpr std::uint64_t piece_bytes = 256 * 1024;
/// Up to here an owner takes all parts to scratch, so that peers may finish out of turn.
constexpr std::uint64_t staged_bytes = std::uint64_t{1} << 20;

/// The form whose shares are equal: it has the same schedules.
collective_kind even_form(collective_kind kind) noexcept {
  switch (kind) {
    case collective_kind::all_gather_v:
    case collective_kind::split:
    case collective_kind::window:
      return collective_kind::all_gather;
    case collective_kind::reduce_scatter_v:
      return collective_kind::reduce_scatter;
    case collective_kind::all_to_all_v:
      return collective_kind::all_to_all;
    case collective_kind::gather_v:
      return collective_kind::gather;
    case collective_kind::scatter_v:
      return collective_kind::scatter;
    case collective_kind::barrier:
      return collective_kind::all_reduce;
    default:
      return kind;
  }
}

error no_schedule(const plan_key& key) {
  return error{errc::invalid_state, std::string{name_of(key.kind)} + " has no schedule for algorithm " +
                                        std::string{name_of(key.algorithm)}};
}

schedule::fold_style fold_of(const plan_key& key, rank_t ranks) noexcept {
  const bool staged = ranks > 2 && key.count * key.element_bytes <= staged_bytes;
  return staged ? schedule::fold_style::staged : schedule::fold_style::streamed;
}

schedule::partial_sums sums_of(const plan_key& key) noexcept {
  return key.accumulator_bytes > key.element_bytes ? schedule::partial_sums::in_accumulators
                                                   : schedule::partial_sums::in_output;
}

using made_schedule = result<schedule::algorithm>;

made_schedule all_reduce_schedule(const plan_key& key, rank_t ranks, std::span<const std::uint32_t> hosts) {
  switch (key.algorithm) {
    case algorithm_kind::recursive_doubling:
      return schedule::recursive_doubling_all_reduce(ranks);
    case algorithm_kind::ring:
      return schedule::ring_all_reduce(ranks);
    case algorithm_kind::chain:
      return schedule::chain_all_reduce(ranks);
    case algorithm_kind::double_tree:
      return schedule::double_tree_all_reduce(ranks);
    case algorithm_kind::halving:
      return schedule::recursive_halving_all_reduce(ranks);
    case algorithm_kind::hierarchical:
      return schedule::hierarchical_all_reduce(hosts, schedule::across_hosts::ring, sums_of(key));
    case algorithm_kind::slice_owner:
      return schedule::slice_owner_all_reduce(ranks, fold_of(key, ranks), sums_of(key));
    default:
      return no_schedule(key);
  }
}

made_schedule reduce_schedule(const plan_key& key, rank_t ranks) {
  switch (key.algorithm) {
    case algorithm_kind::binomial:
      return schedule::binomial_reduce(ranks, key.root);
    case algorithm_kind::chain:
      return schedule::chain_reduce(ranks, key.root);
    case algorithm_kind::double_tree:
      return schedule::double_tree_reduce(ranks, key.root);
    case algorithm_kind::direct:
      return schedule::direct_reduce(ranks, key.root, fold_of(key, ranks), sums_of(key));
    case algorithm_kind::slice_owner:
      return schedule::slice_owner_reduce(ranks, key.root, fold_of(key, ranks));
    default:
      return no_schedule(key);
  }
}

made_schedule broadcast_schedule(const plan_key& key, rank_t ranks) {
  switch (key.algorithm) {
    case algorithm_kind::binomial:
      return schedule::binomial_broadcast(ranks, key.root);
    case algorithm_kind::chain:
      return schedule::chain_broadcast(ranks, key.root);
    case algorithm_kind::double_tree:
      return schedule::double_tree_broadcast(ranks, key.root);
    case algorithm_kind::direct:
      return schedule::direct_broadcast(ranks, key.root);
    default:
      return no_schedule(key);
  }
}

made_schedule all_gather_schedule(const plan_key& key, rank_t ranks) {
  switch (key.algorithm) {
    case algorithm_kind::ring:
      return schedule::ring_all_gather(ranks);
    case algorithm_kind::direct:
      return schedule::direct_all_gather(ranks);
    case algorithm_kind::recursive_doubling:
      return schedule::recursive_doubling_all_gather(ranks);
    case algorithm_kind::bruck:
      return schedule::bruck_all_gather(ranks);
    default:
      return no_schedule(key);
  }
}

made_schedule reduce_scatter_schedule(const plan_key& key, rank_t ranks) {
  switch (key.algorithm) {
    case algorithm_kind::ring:
      return schedule::ring_reduce_scatter(ranks);
    case algorithm_kind::halving:
      return schedule::recursive_halving_reduce_scatter(ranks);
    case algorithm_kind::slice_owner:
      return schedule::slice_owner_reduce_scatter(ranks, fold_of(key, ranks), sums_of(key));
    default:
      return no_schedule(key);
  }
}

made_schedule scan_schedule(const plan_key& key, rank_t ranks) {
  const bool inclusive = key.kind == collective_kind::scan;
  if (key.algorithm == algorithm_kind::direct)
    return inclusive ? schedule::direct_scan(ranks, fold_of(key, ranks))
                     : schedule::direct_exscan(ranks, fold_of(key, ranks));
  if (key.algorithm == algorithm_kind::chain)
    return inclusive ? schedule::chain_scan(ranks) : schedule::chain_exscan(ranks);
  return inclusive ? schedule::recursive_doubling_scan(ranks) : schedule::recursive_doubling_exscan(ranks);
}

made_schedule schedule_for(const plan_key& key, rank_t ranks, std::span<const std::uint32_t> hosts) {
  const bool binomial = key.algorithm == algorithm_kind::binomial;
  switch (even_form(key.kind)) {
    case collective_kind::all_reduce:
      return all_reduce_schedule(key, ranks, hosts);
    case collective_kind::reduce:
      return reduce_schedule(key, ranks);
    case collective_kind::broadcast:
      return broadcast_schedule(key, ranks);
    case collective_kind::all_gather:
      return all_gather_schedule(key, ranks);
    case collective_kind::reduce_scatter:
      return reduce_scatter_schedule(key, ranks);
    case collective_kind::all_to_all:
      return key.algorithm == algorithm_kind::bruck ? schedule::bruck_all_to_all(ranks)
                                                    : schedule::direct_all_to_all(ranks);
    case collective_kind::gather:
      return binomial ? schedule::binomial_gather(ranks, key.root) : schedule::direct_gather(ranks, key.root);
    case collective_kind::scatter:
      return binomial ? schedule::binomial_scatter(ranks, key.root)
                      : schedule::direct_scatter(ranks, key.root);
    case collective_kind::scan:
    case collective_kind::exscan:
      return scan_schedule(key, ranks);
    default:
      return no_schedule(key);
  }
}

/// A share of `count` elements from `offset` on, in as many blocks as the schedule cuts one into.
void add_share(std::vector<extent>& table, std::uint64_t offset, std::uint64_t count, std::uint32_t blocks) {
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const std::uint64_t begin = count / blocks * b + std::min<std::uint64_t>(b, count % blocks);
    const std::uint64_t end = count / blocks * (b + 1) + std::min<std::uint64_t>(b + 1, count % blocks);
    table.push_back({offset + begin, end - begin});
  }
}

std::vector<extent> shares(const std::vector<std::uint64_t>& counts, std::uint32_t blocks) {
  std::vector<extent> table;
  table.reserve(counts.size() * blocks);
  std::uint64_t offset = 0;
  for (const std::uint64_t count : counts) {
    add_share(table, offset, count, blocks);
    offset += count;
  }
  return table;
}

result<block_map> blocks_of(const plan_key& key, const schedule::definition& what, rank_t rank) {
  if (!key.counts) {
    // Blocks begin at cache lines, so that two ranks never write one.
    const std::uint64_t grain = std::max<std::uint64_t>(1, 64 / key.element_bytes);
    return block_map::even(what, key.count, key.count >= 64 * grain ? grain : 1);
  }
  const auto& counts = key.counts->counts;
  std::vector<extent> own;
  add_share(own, 0, counts[static_cast<std::size_t>(rank)], what.blocks);
  switch (key.kind) {
    case collective_kind::all_to_all_v:
      return block_map::from_tables(what, shares(counts, what.blocks),
                                    shares(key.counts->arriving, what.blocks));
    case collective_kind::reduce_scatter_v:
    case collective_kind::scatter_v:
      return block_map::from_tables(what, shares(counts, what.blocks), std::move(own));
    default:
      return block_map::from_tables(what, std::move(own), shares(counts, what.blocks));
  }
}

/// Equal on all ranks. What is sent straight to whoever wants it gains nothing from pieces.
std::uint32_t pieces_of(const plan_key& key, const schedule::algorithm& made, const block_map& blocks) {
  const bool straight = key.algorithm == algorithm_kind::direct && !reduces(key.kind);
  if (straight || made.unit() == schedule::step_unit::run_of_blocks) return 1;
  if (!key.counts) return schedule::pieces_within(blocks, key.element_bytes, piece_bytes);
  const std::uint64_t longest = *std::max_element(key.counts->counts.begin(), key.counts->counts.end());
  const std::uint64_t bytes = longest / made.what().blocks * key.element_bytes;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes / piece_bytes + 1, 1, 1u << 20));
}

}  // namespace

plan_cache::plan_cache(rank_t rank, rank_t ranks, std::vector<std::uint32_t> hosts)
    : rank_{rank}, ranks_{ranks}, hosts_{std::move(hosts)} {
  hosts_.resize(static_cast<std::size_t>(ranks_));
}

bool plan_cache::before::operator()(const plan_key& a, const plan_key& b) const noexcept {
  const auto plain = [](const plan_key& k) {
    return std::tuple{k.kind,
                      k.algorithm,
                      k.in_place,
                      k.element_bytes,
                      k.accumulator_bytes,
                      k.root,
                      k.count,
                      k.counts ? k.counts->hash : 0};
  };
  if (const auto order = plain(a) <=> plain(b); order != 0) return order < 0;
  if (!a.counts || a.counts == b.counts) return false;
  return std::tie(a.counts->counts, a.counts->arriving) < std::tie(b.counts->counts, b.counts->arriving);
}

result<std::shared_ptr<const schedule::plan>> plan_cache::find(const plan_key& key) {
  if (const auto known = index_.find(key); known != index_.end()) {
    recent_.splice(recent_.begin(), recent_, known->second);
    return recent_.front().second;
  }
  auto made = make(key);
  if (!made) return std::move(made).error();
  recent_.emplace_front(key, std::make_shared<const schedule::plan>(std::move(*made)));
  index_[key] = recent_.begin();
  if (recent_.size() > capacity) {
    index_.erase(recent_.back().first);
    recent_.pop_back();
  }
  return recent_.front().second;
}

result<schedule::plan> plan_cache::make(const plan_key& key) const {
  auto made = schedule_for(key, ranks_, hosts_);
  if (!made) return std::move(made).error();
  auto blocks = blocks_of(key, made->what(), rank_);
  if (!blocks) return std::move(blocks).error();
  schedule::lowering_options options;
  options.element_bytes = key.element_bytes;
  options.accumulator_bytes = key.accumulator_bytes;
  options.form = key.in_place ? schedule::placement::in_place : schedule::placement::out_of_place;
  options.pieces = pieces_of(key, *made, *blocks);
  return schedule::lower(*made, rank_, *blocks, options);
}

}  // namespace chorale
