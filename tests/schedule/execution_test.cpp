#include "edit.hpp"
#include "trial.hpp"
#include <chorale/schedule/generators.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace {

using namespace chorale::schedule;
using chorale::rank_t;
using trials::layout;
using trials::trial;

#ifdef CHORALE_SANITIZED
constexpr int rounds = 1;
constexpr rank_t many_ranks = 7, few_ranks = 4;
#else
constexpr int rounds = 24;
constexpr rank_t many_ranks = 20, few_ranks = 10;
#endif

/// Draws sizes, roots, layouts; runs an algorithm in both forms with every layout it allows.
class play {
 public:
  explicit play(std::uint64_t seed) : random_{seed}, seed_{seed} {}

  std::uint64_t up_to(std::uint64_t most) { return random_() % (most + 1); }
  rank_t ranks(rank_t most) { return static_cast<rank_t>(1 + up_to(static_cast<std::uint64_t>(most) - 1)); }
  rank_t root(rank_t n) { return static_cast<rank_t>(up_to(static_cast<std::uint64_t>(n) - 1)); }
  std::vector<std::uint32_t> hosts(rank_t n) {
    std::vector<std::uint32_t> host_of(static_cast<std::size_t>(n));
    const std::uint64_t hosts = 1 + up_to(3);
    for (std::uint32_t& host : host_of) host = static_cast<std::uint32_t>(up_to(hosts - 1));
    return host_of;
  }
  std::mt19937_64& random() { return random_; }

  void operator()(const chorale::result<algorithm>& made, bool left_fold, bool wide = false) {
    BOOST_REQUIRE(made.has_value());
    const definition& what = made->what();
    const bool runs = made->unit() == step_unit::run_of_blocks;
    for (const placement form : {placement::out_of_place, placement::in_place}) {
      if (!made->allows(form)) continue;
      for (const layout blocks : {layout::even, layout::packed, layout::spread}) {
        const bool own_lengths = blocks != layout::even;
        if (own_lengths && made->equal_shares_only()) continue;
        if (runs && blocks == layout::spread) continue;
        // In place, what goes to a rank and what comes from it would have to be equally long.
        if (own_lengths && form == placement::in_place && what.what == collective::all_to_all) continue;
        const std::uint64_t n = static_cast<std::uint64_t>(what.ranks);
        const std::uint64_t counts[] = {0, 1, n - 1, n, up_to(200)};
        trial t{.count = counts[up_to(4)],
                .pieces = runs ? 1 : static_cast<std::uint32_t>(1 + up_to(3)),
                .form = form,
                .blocks = blocks,
                .seed = random_(),
                .wide = wide};
        const std::string wrong = trials::attempt(*made, t, left_fold);
        BOOST_TEST(wrong.empty(), "play " << seed_ << ": " << trials::describe(*made, t) << ": " << wrong);
      }
    }
  }

 private:
  std::mt19937_64 random_;
  std::uint64_t seed_;
};

std::uint64_t fresh_seed() {
  const std::uint64_t seed = std::random_device{}();
  BOOST_TEST_MESSAGE("seed " << seed);
  return seed;
}

ring_order shuffled(rank_t n, std::mt19937_64& random) {
  ring_order order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

constexpr fold_style folds[] = {fold_style::staged, fold_style::streamed};

}  // namespace

BOOST_AUTO_TEST_SUITE(execution)

BOOST_AUTO_TEST_CASE(all_reduces_compute_sums) {
  play run{fresh_seed()};
  for (int round = 0; round < rounds; ++round) {
    const rank_t n = run.ranks(round % 3 == 0 ? many_ranks : few_ranks);
    const auto channels = static_cast<std::uint32_t>(1 + run.up_to(3));
    run(ring_all_reduce(n, channels, shuffled(n, run.random())), false);
    run(recursive_doubling_all_reduce(n), false);
    run(chain_all_reduce(n), true);
    run(recursive_halving_all_reduce(n), false);
    run(double_tree_all_reduce(n), false);
    run(hierarchical_all_reduce(run.hosts(n)), false);
    run(hierarchical_all_reduce(run.hosts(n), across_hosts::recursive_doubling), false);
    run(hierarchical_all_reduce(run.hosts(n), across_hosts::slice_owner), false);
    for (const fold_style fold : folds) {
      run(slice_owner_all_reduce(n, fold), true);
      run(slice_owner_all_reduce(n, fold, partial_sums::in_accumulators), true);
    }
  }
}

BOOST_AUTO_TEST_CASE(rooted_collectives_compute) {
  play run{fresh_seed()};
  for (int round = 0; round < rounds; ++round) {
    const rank_t n = run.ranks(round % 3 == 0 ? many_ranks : few_ranks);
    const rank_t root = run.root(n);
    run(binomial_broadcast(n, root), true);
    run(chain_broadcast(n, root), true);
    run(binomial_reduce(n, root), false);
    run(chain_reduce(n, root), true);
    for (const fold_style fold : folds) run(slice_owner_reduce(n, root, fold), true);
    run(direct_gather(n, root), true);
    run(direct_scatter(n, root), true);
    run(direct_broadcast(n, root), true);
    run(direct_reduce(n, root), true);
    run(double_tree_broadcast(n, root), true);
    run(double_tree_reduce(n, root), false);
    run(binomial_gather(n, root), true);
    run(binomial_scatter(n, root), true);
  }
}

BOOST_AUTO_TEST_CASE(shares_and_scans_compute) {
  play run{fresh_seed()};
  for (int round = 0; round < rounds; ++round) {
    const rank_t n = run.ranks(round % 3 == 0 ? many_ranks : few_ranks);
    const auto channels = static_cast<std::uint32_t>(1 + run.up_to(3));
    run(ring_reduce_scatter(n, channels, shuffled(n, run.random())), false);
    run(ring_all_gather(n, channels, shuffled(n, run.random())), false);
    run(direct_all_gather(n), true);
    for (const fold_style fold : folds) {
      run(slice_owner_reduce_scatter(n, fold), true);
      run(slice_owner_reduce_scatter(n, fold, partial_sums::in_accumulators), true);
    }
    run(direct_all_to_all(n), true);
    run(chain_scan(n), true);
    run(chain_exscan(n), true);
    run(recursive_doubling_scan(n), false);
    run(recursive_doubling_exscan(n), false);
    for (const fold_style fold : folds) {
      run(direct_scan(n, fold), true);
      run(direct_exscan(n, fold), true);
    }
    run(bruck_all_to_all(n), true);
    run(bruck_all_gather(n), true);
    run(recursive_doubling_all_gather(n), true);
    run(recursive_halving_reduce_scatter(n), false);
  }
}

BOOST_AUTO_TEST_CASE(wide_folds_round_once) {
  play run{fresh_seed()};
  for (int round = 0; round < rounds; ++round) {
    const rank_t n = run.ranks(12);
    for (const fold_style fold : folds) {
      run(slice_owner_all_reduce(n, fold, partial_sums::in_accumulators), true, true);
      run(slice_owner_reduce_scatter(n, fold, partial_sums::in_accumulators), true, true);
      run(slice_owner_reduce(n, run.root(n), fold), true, true);
      run(direct_reduce(n, run.root(n), fold, partial_sums::in_accumulators), true, true);
      run(direct_scan(n, fold), true, true);
      run(direct_exscan(n, fold), true, true);
      run(hierarchical_all_reduce(run.hosts(n), across_hosts::slice_owner, partial_sums::in_accumulators),
          false, true);
    }
  }
}

BOOST_AUTO_TEST_CASE(damage_is_seen) {
  const std::uint64_t seed = fresh_seed();
  const auto fails_under_some_seed = [&](const algorithm& a, placement form) {
    for (std::uint64_t i = 0; i < 40; ++i) {
      const trial t{.count = 20, .form = form, .seed = seed + i};
      if (!trials::attempt(a, t, false).empty()) return true;
    }
    return false;
  };
  // In place, a result that lands before the input was kept spoils the next rank's.
  const auto early = edit::changed(*chain_exscan(6), [](rank_t, edit::loose_program& p) {
    for (edit::loose_step& s : p.steps)
      if (s.what.kind == step_kind::recv) s.dependencies.clear();
  });
  BOOST_TEST(!fails_under_some_seed(early, placement::out_of_place));
  BOOST_TEST(fails_under_some_seed(early, placement::in_place));
  const auto overrun = edit::changed(*bruck_all_to_all(6), [](rank_t, edit::loose_program& p) {
    for (edit::loose_step& s : p.steps)
      if (s.what.dst.where == space::out && s.dependencies.size() == 2) s.dependencies.pop_back();
  });
  BOOST_TEST(fails_under_some_seed(overrun, placement::in_place));
  const auto elsewhere = edit::changed(*binomial_scatter(6, 2), [](rank_t rank, edit::loose_program& p) {
    if (rank == 4) p.steps.back().what.src.block ^= 1U;
  });
  BOOST_TEST(fails_under_some_seed(elsewhere, placement::out_of_place));
}

BOOST_AUTO_TEST_SUITE_END()
