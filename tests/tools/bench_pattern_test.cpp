// What the benchmark's check accepts and what it catches.
#include "../../bench/pattern.hpp"
#include <chorale/kernels/element.hpp>

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace {

using namespace chorale;
using namespace chorale::bench;

/// A right output of f32, from the definition, not from the contributions' order of combination.
std::vector<float> right_output(const benched_collective& what, const place& at, const pattern& p,
                                std::size_t count) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    const contribution of = what.made_of(at, i);
    for (rank_t r = of.first; r < of.end; ++r) out[i] += static_cast<float>(p.value(r, of.index));
  }
  return out;
}

std::uint64_t wrong_in(const benched_collective& what, const place& at, const pattern& p,
                       const std::vector<float>& out) {
  return p.count_wrong(what, at, reinterpret_cast<const std::byte*>(out.data()), out.size());
}

BOOST_AUTO_TEST_SUITE(bench_pattern)

BOOST_AUTO_TEST_CASE(every_planted_wrong_element_is_counted) {
  constexpr rank_t ranks = 3;
  constexpr std::uint64_t count = 50;
  const pattern p{dtype::f32, reduction::sum, ranks};
  for (const benched_collective& what : benched_collectives()) {
    if (what.kind == collective_kind::barrier) continue;
    const place at{1, ranks, 1, count};  // the root, so that everything has an output
    BOOST_TEST_CONTEXT(what.name) {
      std::vector<float> out = right_output(what, at, p, what.has_shares ? count * ranks : count);
      BOOST_TEST(wrong_in(what, at, p, out) == 0U);
      out[7] += 1;
      out.back() = std::numeric_limits<float>::quiet_NaN();
      BOOST_TEST(wrong_in(what, at, p, out) == 2U);
    }
  }
}

BOOST_AUTO_TEST_CASE(elements_at_a_wrong_place_are_wrong) {
  const benched_collective& what = *find_collective("all_gather");
  const pattern p{dtype::f32, reduction::sum, 2};
  const place at{0, 2, 0, 1024};
  std::vector<float> out = right_output(what, at, p, 2048);
  // By a whole cache line, a whole piece, and a whole share.
  for (const std::size_t by : {16U, 512U, 1024U}) {
    std::vector<float> moved(out.begin() + static_cast<std::ptrdiff_t>(by), out.end());
    moved.insert(moved.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(by));
    BOOST_TEST(wrong_in(what, at, p, moved) > 1800U);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_left_out_of_a_reduction_shows) {
  const benched_collective& what = *find_collective("all_reduce");
  for (const auto op : {reduction::sum, reduction::avg, reduction::max, reduction::prod}) {
    const pattern p{dtype::f32, op, 2};
    const place at{0, 2, 0, 1000};
    std::vector<float> only_mine(1000);
    for (std::size_t i = 0; i < only_mine.size(); ++i) only_mine[i] = static_cast<float>(p.value(0, i));
    BOOST_TEST_CONTEXT(name_of(op)) BOOST_TEST(wrong_in(what, at, p, only_mine) > 300U);
  }
}

BOOST_AUTO_TEST_CASE(what_nobody_contributes_to_is_not_looked_at) {
  const pattern p{dtype::f32, reduction::sum, 2};
  const std::vector<float> anything(10, -1.0F);
  BOOST_TEST(wrong_in(*find_collective("exscan"), place{0, 2, 0, 10}, p, anything) == 0U);
  BOOST_TEST(wrong_in(*find_collective("gather"), place{0, 2, 1, 5}, p, anything) == 0U);
  BOOST_TEST(wrong_in(*find_collective("gather"), place{1, 2, 1, 5}, p, anything) == 10U);
}

BOOST_AUTO_TEST_CASE(narrow_floats_hold_their_results) {
  // Exact for few ranks: each value and each sum is a value of the type.
  for (const rank_t ranks : {2, 3, 4}) {
    const pattern p{dtype::f8e5m2, reduction::sum, ranks};
    for (std::uint64_t i = 0; i < 200; ++i) {
      const double sum = p.result({0, ranks, i});
      BOOST_TEST(static_cast<double>(static_cast<float>(f8e5m2{static_cast<float>(sum)})) == sum);
      BOOST_TEST(p.tolerance(sum) == 0);
    }
  }
  BOOST_TEST((pattern{dtype::f8e5m2, reduction::sum, 64}.tolerance(10)) > 0);
}

BOOST_AUTO_TEST_CASE(sizes_become_counts) {
  const benched_collective& reduces = *find_collective("all_reduce");
  const benched_collective& gathers = *find_collective("all_gather");
  BOOST_TEST(count_for(reduces, 1024, dtype::f32, 4) == 256U);
  BOOST_TEST(count_for(gathers, 1024, dtype::f32, 4) == 64U);
  BOOST_TEST(bytes_of(gathers, 64, dtype::f32, 4) == 1024U);
  BOOST_TEST(count_for(gathers, 8, dtype::f32, 4) == 1U);
  BOOST_TEST(reduces.bus_factor(4) == 1.5);
  BOOST_TEST(gathers.bus_factor(4) == 0.75);
  BOOST_TEST(find_collective("all_gathers") == nullptr);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
