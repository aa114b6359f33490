#include "task_elsewhere.hpp"
#include <chorale/async/as_result.hpp>
#include <chorale/async/engine.hpp>
#include <chorale/async/virtual_backend.hpp>

#include <boost/test/unit_test.hpp>

#include <memory>
#include <stdexcept>

namespace {

using namespace chorale;
using namespace chorale::testing;

struct simulated {
  engine loop{std::make_unique<virtual_backend>()};
};

BOOST_FIXTURE_TEST_SUITE(as_results, simulated)

task<> fails(errc code) {
  const error why{code, "detail", 4};
  throw failure{why};
  co_return;
}

task<> succeeds() {
  const bool done = true;
  static_cast<void>(done);
  co_return;
}

BOOST_AUTO_TEST_CASE(a_value_stays_a_value) {
  auto got = loop.run(as_result(owned_elsewhere(3)));
  BOOST_REQUIRE(got);
  BOOST_TEST(**got == 3);
  BOOST_TEST(loop.run(as_result(succeeds())).has_value());
}

BOOST_AUTO_TEST_CASE(a_failure_becomes_an_error_with_all_it_knew) {
  const auto got = loop.run(as_result(fails(errc::peer_lost)));
  BOOST_REQUIRE(!got);
  BOOST_TEST((got.error() == errc::peer_lost));
  BOOST_TEST(got.error().culprit() == 4);
  BOOST_TEST(got.error().detail() == "detail");
}

BOOST_AUTO_TEST_CASE(foreign_exceptions_pass_through) {
  BOOST_CHECK_THROW(static_cast<void>(loop.run(as_result(throws_elsewhere()))), std::runtime_error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
