#include "../../bench/versus/cost_fit.hpp"

#include <boost/test/unit_test.hpp>

#include <vector>

namespace {

using chorale::bench::versus::cost_fit;
using chorale::bench::versus::cost_point;
using chorale::bench::versus::fit_cost;

BOOST_AUTO_TEST_SUITE(cost_fits)

BOOST_AUTO_TEST_CASE(a_line_is_found_again) {
  std::vector<cost_point> points;
  for (std::uint64_t bytes = 8; bytes <= (64u << 20); bytes *= 8)
    points.push_back({bytes, 2.5 + 1e-4 * static_cast<double>(bytes)});
  const cost_fit fit = fit_cost(points);
  BOOST_TEST(fit.alpha_us == 2.5, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(fit.beta_us_per_byte == 1e-4, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(fit.worst_error < 1e-6);
}

BOOST_AUTO_TEST_CASE(small_sizes_count_as_much_as_large_ones) {
  // A step at the large end must not drown the latency of the small one.
  const cost_fit fit =
      fit_cost(std::vector<cost_point>{{8, 1}, {64, 1}, {512, 1.1}, {1 << 20, 100}, {8 << 20, 1600}});
  BOOST_TEST(fit.alpha_us > 0.7);
  BOOST_TEST(fit.alpha_us < 1.3);
  BOOST_TEST(fit.worst_error > 0.1);
}

BOOST_AUTO_TEST_CASE(neither_number_is_negative) {
  const cost_fit falling = fit_cost(std::vector<cost_point>{{8, 10}, {1024, 9}, {65536, 5}});
  BOOST_TEST(falling.beta_us_per_byte == 0);
  BOOST_TEST(falling.alpha_us > 5);
  const cost_fit steep = fit_cost(std::vector<cost_point>{{1000, 1}, {2000, 4}});
  BOOST_TEST(steep.alpha_us == 0);
  BOOST_TEST(steep.beta_us_per_byte > 0);
}

BOOST_AUTO_TEST_CASE(one_point_is_latency) {
  const cost_fit fit = fit_cost(std::vector<cost_point>{{64, 3}});
  BOOST_TEST(fit.alpha_us == 3, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(fit.beta_us_per_byte == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
