#include <chorale/schedule/checker.hpp>
#include <chorale/schedule/generators.hpp>
#include <chorale/schedule/lowering.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace {

using namespace chorale::schedule;
using chorale::rank_t;

// Sanitizers make the same work five to twenty times slower: fewer sizes there.
#ifdef CHORALE_SANITIZED
constexpr rank_t every_size_up_to = 13;
constexpr rank_t one_large_size = 40;
constexpr int random_hierarchies = 8;
#else
constexpr rank_t every_size_up_to = 130;
constexpr rank_t one_large_size = 1000;
constexpr int random_hierarchies = 60;
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

void cheap_all_reduces_pass(rank_t n) {
  passes(recursive_doubling_all_reduce(n), {.slots = 1}, expression::same_everywhere);
  passes(recursive_halving_all_reduce(n), {.slots = 1}, expression::same_everywhere);
  passes(double_tree_all_reduce(n), {.slots = 1}, expression::same_everywhere);
  passes(chain_all_reduce(n), {.slots = 1}, expression::left_fold);
}

void all_reduces_pass(rank_t n) {
  cheap_all_reduces_pass(n);
  passes(ring_all_reduce(n), {}, expression::same_everywhere);
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

void trees_pass(rank_t n, rank_t root) {
  passes(binomial_broadcast(n, root), {.slots = 1}, expression::left_fold);
  passes(binomial_reduce(n, root), {.slots = 1}, expression::same_everywhere);
  passes(binomial_gather(n, root), {.slots = 1}, expression::left_fold);
  passes(binomial_scatter(n, root), {.slots = 1}, expression::left_fold);
  passes(double_tree_broadcast(n, root), {.slots = 1}, expression::left_fold);
  passes(double_tree_reduce(n, root), {.slots = 1}, expression::same_everywhere);
}

void chains_pass(rank_t n, rank_t root) {
  passes(chain_broadcast(n, root), {.slots = 1}, expression::left_fold);
  passes(chain_reduce(n, root), {.slots = 1}, expression::left_fold);
}

void directs_pass(rank_t n, rank_t root) {
  passes(direct_broadcast(n, root), {.slots = 1}, expression::left_fold);
  passes(direct_gather(n, root), {.slots = 1}, expression::left_fold);
  passes(direct_scatter(n, root), {.slots = 1}, expression::left_fold);
  for (const fold_style fold : {fold_style::staged, fold_style::streamed}) {
    passes(slice_owner_reduce(n, root, fold), {.slots = 1}, expression::left_fold);
    for (const partial_sums sums : {partial_sums::in_output, partial_sums::in_accumulators})
      passes(direct_reduce(n, root, fold, sums), {.slots = 1}, expression::left_fold);
  }
}

void scans_pass(rank_t n) {
  passes(chain_scan(n), {.slots = 1}, expression::left_fold);
  passes(chain_exscan(n), {.slots = 1}, expression::left_fold);
  passes(recursive_doubling_scan(n), {.slots = 1}, expression::same_everywhere);
  passes(recursive_doubling_exscan(n), {.slots = 1}, expression::same_everywhere);
}

void direct_scans_pass(rank_t n) {
  for (const fold_style fold : {fold_style::staged, fold_style::streamed}) {
    passes(direct_scan(n, fold), {.slots = 1}, expression::left_fold);
    passes(direct_exscan(n, fold), {.slots = 1}, expression::left_fold);
  }
}

void shares_pass(rank_t n) {
  passes(direct_all_to_all(n), {.slots = 1}, expression::left_fold);
  passes(bruck_all_to_all(n), {.slots = 1}, expression::left_fold);
  passes(bruck_all_gather(n), {.slots = 1}, expression::left_fold);
  passes(direct_all_gather(n), {.slots = 1}, expression::left_fold);
  passes(recursive_doubling_all_gather(n), {.slots = 1}, expression::left_fold);
  passes(recursive_halving_reduce_scatter(n), {.slots = 1}, expression::same_everywhere);
}

/// Messages and bytes that the busiest rank sends, with S = 4096 · n bytes in the larger buffer.
struct cost {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};
cost busiest(const algorithm& a) {
  const definition& what = a.what();
  const auto n = static_cast<std::uint64_t>(what.ranks);
  const bool shares = what.in_blocks() != what.blocks || what.out_blocks() != what.blocks;
  const block_map blocks = block_map::even(what, shares ? 4096 : 4096 * n);
  cost most;
  for (rank_t r = 0; r < what.ranks; ++r) {
    const auto made = lower(a, r, blocks, {});
    BOOST_REQUIRE(made.has_value());
    cost mine;
    for (const plan_edge& e : made->edges) {
      if (e.way != direction::sending) continue;
      mine.messages += e.messages;
      mine.bytes += e.bytes;
    }
    most = {std::max(most.messages, mine.messages), std::max(most.bytes, mine.bytes)};
  }
  return most;
}

/// `vectors`: bytes in units of S.
void costs(const chorale::result<algorithm>& made, std::uint64_t messages, double vectors) {
  BOOST_REQUIRE(made.has_value());
  const cost found = busiest(*made);
  const double vector = 4096.0 * made->what().ranks;
  BOOST_TEST_CONTEXT(made->name() << ", " << name_of(made->what().what) << ", " << made->what().ranks
                                  << " ranks") {
    BOOST_TEST(found.messages == messages);
    // Blocks differ by an element where they do not divide the vector.
    BOOST_TEST(std::abs(static_cast<double>(found.bytes) - vectors * vector) <=
               static_cast<double>(messages));
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(generators)

BOOST_AUTO_TEST_CASE(all_reduce_passes_for_every_size) {
  for (rank_t n = 1; n <= every_size_up_to; ++n) all_reduces_pass(n);
}

BOOST_AUTO_TEST_CASE(all_reduce_passes_for_a_large_size) {
  const rank_t n = one_large_size;
  passes(ring_all_reduce(n), {}, expression::same_everywhere);
  passes(slice_owner_all_reduce(n, fold_style::staged), {.slots = 1}, expression::left_fold);
  passes(slice_owner_all_reduce(n, fold_style::streamed, partial_sums::in_accumulators), {.slots = 1},
         expression::left_fold);
  cheap_all_reduces_pass(n);
}

BOOST_AUTO_TEST_CASE(other_collectives_pass_for_a_large_size) {
  const rank_t n = one_large_size;
  trees_pass(n, n / 3);
  chains_pass(n, n / 3);
  scans_pass(n);
  passes(bruck_all_gather(n), {.slots = 1}, expression::left_fold);
  passes(recursive_halving_reduce_scatter(n), {.slots = 1}, expression::same_everywhere);
  passes(slice_owner_reduce(n, n - 1, fold_style::streamed), {.slots = 1}, expression::left_fold);
  passes(direct_all_to_all(n), {.slots = 1}, expression::left_fold);
}

BOOST_AUTO_TEST_CASE(rooted_collectives_pass_for_every_size) {
  for (rank_t n = 1; n <= every_size_up_to; ++n) {
    for (const rank_t root : roots_of(n)) {
      trees_pass(n, root);
      chains_pass(n, root);
      directs_pass(n, root);
    }
  }
}

BOOST_AUTO_TEST_CASE(shares_and_scans_pass_for_every_size) {
  for (rank_t n = 1; n <= every_size_up_to; ++n) {
    shares_pass(n);
    scans_pass(n);
    direct_scans_pass(n);
  }
}

BOOST_AUTO_TEST_CASE(hierarchies_pass_for_hosts_of_any_size) {
  const std::uint64_t seed = std::random_device{}();
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < random_hierarchies; ++round) {
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
      for (const partial_sums sums : {partial_sums::in_output, partial_sums::in_accumulators})
        passes(hierarchical_all_reduce(host_of, across_hosts::slice_owner, sums), {.slots = 1},
               expression::same_everywhere);
    }
  }
}

BOOST_AUTO_TEST_CASE(halves_pass_too) {
  for (const rank_t n : {1, 2, 3, 4, 5, 7, 8, 13, 32, 33}) {
    passes(ring_reduce_scatter(n, 2), {}, expression::same_everywhere);
    passes(ring_all_gather(n, 2), {}, expression::same_everywhere);
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
  for (const rank_t n : {2, 3, 8, 13, 16, 31, 64}) {
    const auto size = static_cast<std::uint64_t>(n);
    const double others = static_cast<double>(n - 1) / n;
    costs(ring_all_reduce(n), 2 * (size - 1), 2 * others);
    costs(slice_owner_all_reduce(n), 2 * (size - 1), 2 * others);
    costs(slice_owner_reduce(n, n / 2), size, 1);
    costs(chain_reduce(n, n / 2), 1, 1);
    costs(binomial_reduce(n, n / 2), 1, 1);
    costs(direct_broadcast(n, n / 2), size - 1, n - 1);
    costs(chain_broadcast(n, n / 2), 1, 1);
    costs(double_tree_broadcast(n, n / 2), 2, 1);
    costs(double_tree_reduce(n, n / 2), 2, 1);
    costs(ring_reduce_scatter(n), size - 1, others);
    costs(slice_owner_reduce_scatter(n), size - 1, others);
    costs(direct_all_to_all(n), size - 1, others);
    costs(direct_scatter(n, n / 2), size - 1, others);
    costs(chain_scan(n), 1, 1);
    costs(direct_scan(n), size - 1, n - 1);
    const auto rounds = static_cast<std::uint64_t>(std::bit_width(size - 1));
    costs(binomial_broadcast(n, 0), rounds, static_cast<double>(rounds));
    costs(binomial_scatter(n, 0), rounds, others);
    costs(recursive_doubling_scan(n), rounds, static_cast<double>(rounds));
    BOOST_TEST(busiest(*bruck_all_gather(n)).messages <= 2 * rounds);
    BOOST_TEST(busiest(*bruck_all_to_all(n)).messages == rounds);
    BOOST_TEST(busiest(*double_tree_all_reduce(n)).messages <= 4U);
    BOOST_TEST(busiest(*double_tree_all_reduce(n)).bytes <= 2 * 4096 * size + 4);
    if (!std::has_single_bit(size)) continue;
    costs(recursive_doubling_all_reduce(n), rounds, static_cast<double>(rounds));
    costs(recursive_halving_all_reduce(n), 2 * rounds, 2 * others);
    costs(recursive_halving_reduce_scatter(n), rounds, others);
    costs(recursive_doubling_all_gather(n), rounds, others);
    costs(bruck_all_to_all(n), rounds, static_cast<double>(rounds) / 2);
  }
  BOOST_TEST(busiest(*recursive_doubling_all_reduce(17)).messages == 5U);
  BOOST_TEST(slice_owner_all_reduce(9, fold_style::staged)->program(4).scratch().size() == 8U);
  BOOST_TEST(slice_owner_all_reduce(9, fold_style::streamed)->program(4).scratch().size() == 1U);
}

BOOST_AUTO_TEST_CASE(double_trees_are_shallow_and_busy_a_rank_once) {
  for (rank_t n = 2; n <= 200; ++n) {
    const auto made = double_tree_all_reduce(n);
    for (std::uint32_t tree = 0; tree < 2; ++tree) {
      std::vector<rank_t> parent(static_cast<std::size_t>(n), chorale::no_rank);
      for (rank_t r = 0; r < n; ++r) {
        const rank_program program = made->program(r);
        for (const step& s : program.steps()) {
          // On the way up: the input or a sum leaves for the parent.
          if (s.channel == tree && (s.kind == step_kind::recv_reduce_send ||
                                    (s.kind == step_kind::send && s.src.where == space::in)))
            parent[static_cast<std::size_t>(r)] = s.send_to;
        }
      }
      for (rank_t r = 0; r < n; ++r) {
        int depth = 0;
        for (rank_t at = r; at != chorale::no_rank && depth <= n; ++depth)
          at = parent[static_cast<std::size_t>(at)];
        BOOST_TEST(depth <= std::bit_width(static_cast<std::uint32_t>(n)));
      }
    }
    for (rank_t r = 0; r < n; ++r) {
      const rank_program program = made->program(r);
      bool inner[2] = {false, false};
      for (const step& s : program.steps())
        if (reduces(s.kind)) inner[s.channel] = true;
      BOOST_TEST(!(inner[0] && inner[1]), n << " ranks, rank " << r);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
