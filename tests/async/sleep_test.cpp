#include <chorale/async/scope.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/virtual_backend.hpp>

#include <boost/test/unit_test.hpp>

#include <vector>

namespace {

using namespace chorale;
using namespace std::chrono_literals;

struct simulated {
  engine loop{std::make_unique<virtual_backend>()};
};

BOOST_FIXTURE_TEST_SUITE(sleeping, simulated)

task<> sleep_and_note(duration in, std::vector<long>& woken) {
  const environment& here = co_await this_environment{};
  const time_point begun = here.loop->now();
  co_await sleep_for(in);
  woken.push_back((here.loop->now() - begun).count());
}

task<> three_sleepers(std::vector<long>& woken) {
  const environment& here = co_await this_environment{};
  scope all{here};
  all.spawn(sleep_and_note(30ns, woken));
  all.spawn(sleep_and_note(10ns, woken));
  all.spawn(sleep_and_note(20ns, woken));
  co_await all.join();
}

BOOST_AUTO_TEST_CASE(sleepers_wake_at_their_moments) {
  std::vector<long> woken;
  loop.run(three_sleepers(woken));
  BOOST_TEST((woken == std::vector<long>{10, 20, 30}));
}

BOOST_AUTO_TEST_CASE(a_past_moment_does_not_wait) {
  const time_point before = loop.now();
  loop.run(sleep_for(-5s));
  BOOST_TEST((loop.now() == before));
}

task<errc> sleep_until_stopped() {
  errc why = errc::ok;
  try {
    co_await sleep_for(1h);
  } catch (const failure& f) {
    why = f.why().code();
  }
  co_return why;
}

task<> keep_reason(errc& why) { why = co_await sleep_until_stopped(); }

task<> stop_a_sleeper(errc& why, duration after) {
  const environment& here = co_await this_environment{};
  scope one{here};
  one.spawn(keep_reason(why));
  co_await sleep_for(after);
  one.request_stop(errc::peer_lost);
  co_await one.join();
}

BOOST_AUTO_TEST_CASE(a_stop_ends_a_sleep_with_its_reason) {
  const time_point before = loop.now();
  errc why = errc::ok;
  loop.run(stop_a_sleeper(why, 1s));
  BOOST_TEST((why == errc::peer_lost));
  BOOST_TEST((loop.now() - before == 1s));
}

BOOST_AUTO_TEST_CASE(a_stop_at_the_very_moment_ends_it_once) {
  errc why = errc::dropped;
  loop.run(stop_a_sleeper(why, 1h));  // both end at the same instant
  BOOST_TEST((why == errc::ok || why == errc::peer_lost));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
