#include <chorale/async/sleep.hpp>
#include <chorale/async/virtual_backend.hpp>
#include <chorale/async/when.hpp>

#include <boost/test/unit_test.hpp>

#include <memory>
#include <stdexcept>

namespace {

using namespace chorale;
using namespace std::chrono_literals;

struct simulated {
  engine loop{std::make_unique<virtual_backend>()};
};

task<int> value_after(duration in, int value) {
  const int mine = value;
  co_await sleep_for(in);
  co_return mine;
}

task<std::unique_ptr<int>> owned_after(duration in, int value) {
  auto mine = std::make_unique<int>(value);
  co_await sleep_for(in);
  co_return std::move(mine);
}

task<int> fail_after(duration in, errc code) {
  const errc mine = code;
  co_await sleep_for(in);
  throw failure{error{mine}};
}

BOOST_FIXTURE_TEST_SUITE(several_tasks, simulated)

BOOST_AUTO_TEST_CASE(when_all_gives_every_value_in_the_order_of_its_arguments) {
  const time_point begun = loop.now();
  const auto values = loop.run(when_all(value_after(3s, 1), owned_after(1s, 2), sleep_for(2s)));
  BOOST_TEST(std::get<0>(values) == 1);
  BOOST_TEST(*std::get<1>(values) == 2);
  BOOST_TEST((loop.now() - begun == 3s));  // together, not one after the other
}

BOOST_AUTO_TEST_CASE(when_all_of_nothing_is_done) { loop.run(when_all()); }

BOOST_AUTO_TEST_CASE(when_all_stops_at_the_first_failure_and_throws_it) {
  const time_point begun = loop.now();
  BOOST_CHECK_EXCEPTION(loop.run(when_all(value_after(1h, 1), fail_after(2s, errc::link_lost),
                                          fail_after(1s, errc::peer_lost))),
                        failure, [](const failure& f) { return f.why() == errc::peer_lost; });
  BOOST_TEST((loop.now() - begun == 1s));
}

BOOST_AUTO_TEST_CASE(when_any_ends_with_the_first_and_awaits_the_losers) {
  const time_point begun = loop.now();
  const auto ended = loop.run(when_any(value_after(1h, 1), value_after(1s, 2), owned_after(2h, 3)));
  BOOST_TEST(ended.first == 1U);
  BOOST_TEST(*std::get<1>(ended.outcomes) == 2);
  BOOST_TEST((std::get<0>(ended.outcomes).error() == errc::cancelled));
  BOOST_TEST((std::get<2>(ended.outcomes).error() == errc::cancelled));
  BOOST_TEST((loop.now() - begun == 1s));
}

BOOST_AUTO_TEST_CASE(when_any_counts_a_failure_as_an_end) {
  const auto ended = loop.run(when_any(value_after(1h, 1), fail_after(1s, errc::peer_lost)));
  BOOST_TEST(ended.first == 1U);
  BOOST_TEST((std::get<1>(ended.outcomes).error() == errc::peer_lost));
}

BOOST_AUTO_TEST_CASE(when_any_keeps_every_success) {
  // Both end at the same instant: neither result may be lost.
  const auto ended = loop.run(when_any(value_after(1s, 1), value_after(1s, 2)));
  const auto& [first, second] = ended.outcomes;
  BOOST_TEST(ended.first == 0U);
  BOOST_TEST(*first == 1);
  BOOST_TEST((second ? *second == 2 : second.error() == errc::cancelled));
}

task<> foreign_exception() {
  co_await sleep_for(1s);
  throw std::out_of_range{"not ours"};
}

BOOST_AUTO_TEST_CASE(when_any_passes_foreign_exceptions_on) {
  BOOST_CHECK_THROW(loop.run(when_any(value_after(1h, 1), foreign_exception())), std::out_of_range);
}

task<int> nested() {
  task<int> left = value_after(1s, 1);
  task<int> right = value_after(2s, 2);
  task<std::tuple<int, int>> inner = when_all(std::move(left), std::move(right));
  task<int> alone = value_after(3s, 3);
  auto all = co_await when_all(std::move(inner), std::move(alone));
  co_return std::get<0>(std::get<0>(all)) + std::get<1>(std::get<0>(all)) + std::get<1>(all);
}

BOOST_AUTO_TEST_CASE(they_nest) { BOOST_TEST(loop.run(nested()) == 6); }

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
