#include <chorale/schedule/checker.hpp>
#include <chorale/schedule/generators.hpp>

#include <boost/test/unit_test.hpp>

#include <numeric>
#include <random>

// Sanitizers make the same work five to twenty times slower: fewer sizes there.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHORALE_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CHORALE_TEST_SANITIZED 1
#endif
#endif

namespace {

using namespace chorale::schedule;
using chorale::rank_t;

#ifdef CHORALE_TEST_SANITIZED
constexpr rank_t every_size_up_to = 13;
constexpr rank_t one_large_size = 40;
#else
constexpr rank_t every_size_up_to = 130;
constexpr rank_t one_large_size = 1000;
#endif

constexpr placement forms[] = {placement::out_of_place, placement::in_place};

void passes(const chorale::result<algorithm>& made, check_options options, expression at_least) {
  BOOST_REQUIRE(made.has_value());
  for (const placement form : forms) {
    options.form = form;
    options.required = at_least;
    const auto report = check(*made, options);
    const std::string why = report ? "" : report.error().message();
    BOOST_TEST(report.has_value(), made->name() << ", " << made->what().ranks << " ranks: " << why);
  }
}

void all_reduces_pass(rank_t n) {
  passes(ring_all_reduce(n), {}, expression::same_everywhere);
  passes(recursive_doubling_all_reduce(n), {.slots = 1}, expression::same_everywhere);
  passes(recursive_halving_all_reduce(n), {.slots = 1}, expression::same_everywhere);
  passes(double_tree_all_reduce(n), {.slots = 1}, expression::same_everywhere);
  passes(chain_all_reduce(n), {.slots = 1}, expression::left_fold);
  for (const fold_style fold : {fold_style::staged, fold_style::streamed}) {
    for (const partial_sums sums : {partial_sums::in_output, partial_sums::in_accumulators})
      passes(slice_owner_all_reduce(n, fold, sums), {.slots = 1}, expression::left_fold);
  }
}

/// Roots that differ in kind: first, last, somewhere between.
std::vector<rank_t> roots_of(rank_t n) {
  std::vector<rank_t> roots{0, n - 1, n / 3};
  std::sort(roots.begin(), roots.end());
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  return roots;
}

void rooted_pass(rank_t n) {
  for (const rank_t root : roots_of(n)) {
    passes(binomial_broadcast(n, root), {.slots = 1}, expression::left_fold);
    passes(chain_broadcast(n, root), {.slots = 1}, expression::left_fold);
    passes(binomial_reduce(n, root), {.slots = 1}, expression::same_everywhere);
    passes(chain_reduce(n, root), {.slots = 1}, expression::left_fold);
    for (const fold_style fold : {fold_style::staged, fold_style::streamed})
      passes(slice_owner_reduce(n, root, fold), {.slots = 1}, expression::left_fold);
    passes(direct_gather(n, root), {.slots = 1}, expression::left_fold);
    passes(direct_scatter(n, root), {.slots = 1}, expression::left_fold);
    passes(direct_broadcast(n, root), {.slots = 1}, expression::left_fold);
    passes(direct_reduce(n, root), {.slots = 1}, expression::left_fold);
    passes(double_tree_broadcast(n, root), {.slots = 1}, expression::left_fold);
    passes(double_tree_reduce(n, root), {.slots = 1}, expression::same_everywhere);
    passes(binomial_gather(n, root), {.slots = 1}, expression::left_fold);
    passes(binomial_scatter(n, root), {.slots = 1}, expression::left_fold);
  }
}

void others_pass(rank_t n) {
  passes(direct_all_to_all(n), {.slots = 1}, expression::left_fold);
  passes(chain_scan(n), {.slots = 1}, expression::left_fold);
  passes(chain_exscan(n), {.slots = 1}, expression::left_fold);
  passes(recursive_doubling_scan(n), {.slots = 1}, expression::same_everywhere);
  passes(recursive_doubling_exscan(n), {.slots = 1}, expression::same_everywhere);
  passes(bruck_all_to_all(n), {.slots = 1}, expression::left_fold);
  passes(bruck_all_gather(n), {.slots = 1}, expression::left_fold);
  passes(recursive_doubling_all_gather(n), {.slots = 1}, expression::left_fold);
  passes(recursive_halving_reduce_scatter(n), {.slots = 1}, expression::same_everywhere);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(generators)

BOOST_AUTO_TEST_CASE(all_reduce_passes_for_every_size) {
  for (rank_t n = 1; n <= every_size_up_to; ++n) all_reduces_pass(n);
}

BOOST_AUTO_TEST_CASE(all_reduce_passes_for_a_large_size) { all_reduces_pass(one_large_size); }

BOOST_AUTO_TEST_CASE(rooted_collectives_pass_for_every_size) {
  for (rank_t n = 1; n <= every_size_up_to; ++n) rooted_pass(n);
}

BOOST_AUTO_TEST_CASE(other_collectives_pass_for_every_size) {
  for (rank_t n = 1; n <= every_size_up_to; ++n) others_pass(n);
}

BOOST_AUTO_TEST_CASE(hierarchies_pass_for_hosts_of_any_size) {
  const std::uint64_t seed = std::random_device{}();
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 60; ++round) {
    const auto n = 1 + random() % 60;
    const auto hosts = 1 + random() % 8;
    std::vector<std::uint32_t> host_of(n);
    const bool mixed = random() % 2 == 0;
    for (std::size_t r = 0; r < n; ++r)
      host_of[r] = static_cast<std::uint32_t>(mixed ? random() % hosts : r * hosts / n);
    BOOST_TEST_CONTEXT("seed " << seed << ", round " << round) {
      passes(hierarchical_all_reduce(host_of), {}, expression::same_everywhere);
      passes(hierarchical_all_reduce(host_of, across_hosts::recursive_doubling), {.slots = 1},
             expression::same_everywhere);
      passes(hierarchical_all_reduce(host_of, across_hosts::slice_owner), {.slots = 1},
             expression::same_everywhere);
    }
  }
}

BOOST_AUTO_TEST_CASE(halves_pass_too) {
  for (const rank_t n : {1, 2, 3, 4, 5, 7, 8, 13, 32, 33}) {
    passes(ring_reduce_scatter(n, 2), {}, expression::same_everywhere);
    passes(ring_all_gather(n, 2), {}, expression::same_everywhere);
    passes(direct_all_gather(n), {.slots = 1}, expression::same_everywhere);
    for (const fold_style fold : {fold_style::staged, fold_style::streamed}) {
      for (const partial_sums sums : {partial_sums::in_output, partial_sums::in_accumulators})
        passes(slice_owner_reduce_scatter(n, fold, sums), {.slots = 1}, expression::left_fold);
    }
  }
}

BOOST_AUTO_TEST_CASE(rings_pass_in_any_order_with_any_number_of_channels) {
  const std::uint64_t seed = std::random_device{}();
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 20; ++round) {
    const auto n = static_cast<rank_t>(1 + random() % 40);
    const auto channels = static_cast<std::uint32_t>(1 + random() % 6);
    ring_order order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    BOOST_TEST_CONTEXT("seed " << seed << ", " << n << " ranks, " << channels << " channels") {
      passes(ring_all_reduce(n, channels, order), {}, expression::same_everywhere);
      passes(ring_reduce_scatter(n, channels, order), {}, expression::same_everywhere);
      passes(ring_all_gather(n, channels, order), {}, expression::same_everywhere);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_lowest_rank_stands_on_the_left) {
  // In the fold over 0 … n − 1 the arriving side is always lower, but for rank 0 itself.
  const auto ring = ring_all_reduce(5);
  for (rank_t r = 0; r < 5; ++r) {
    const rank_program program = ring->program(r);
    for (const step& s : program.steps()) {
      if (!reduces(s.kind)) continue;
      const bool local_first = s.order == operand_order::local_first;
      BOOST_TEST(local_first == (r == 0));
    }
  }
}

BOOST_AUTO_TEST_CASE(costs_are_as_the_table_says) {
  const auto messages_of = [](const algorithm& a, rank_t rank) {
    const rank_program program = a.program(rank);
    return std::count_if(program.steps().begin(), program.steps().end(),
                         [](const step& s) { return sends(s.kind); });
  };
  BOOST_TEST(messages_of(*ring_all_reduce(9, 2), 4) == 2 * 2 * 8);
  BOOST_TEST(messages_of(*recursive_doubling_all_reduce(16), 4) == 4);
  BOOST_TEST(messages_of(*recursive_doubling_all_reduce(17), 0) == 5);
  BOOST_TEST(messages_of(*recursive_doubling_all_reduce(17), 1) == 1);
  BOOST_TEST(messages_of(*slice_owner_all_reduce(9), 4) == 2 * 8);
  BOOST_TEST(slice_owner_all_reduce(9, fold_style::staged)->program(4).scratch().size() == 8U);
  BOOST_TEST(slice_owner_all_reduce(9, fold_style::streamed)->program(4).scratch().size() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()
