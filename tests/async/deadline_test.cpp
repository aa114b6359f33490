#include <chorale/async/event.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/virtual_backend.hpp>
#include <chorale/async/with_environment.hpp>

#include <boost/test/unit_test.hpp>

namespace {

using namespace chorale;
using namespace std::chrono_literals;

struct simulated {
  engine loop{std::make_unique<virtual_backend>()};
};

bool timed_out(const failure& f) { return f.why() == errc::timed_out; }

task<int> value_after(duration in, int value) {
  const int mine = value;
  co_await sleep_for(in);
  co_return mine;
}

BOOST_FIXTURE_TEST_SUITE(deadlines, simulated)

BOOST_AUTO_TEST_CASE(a_deadline_counts_from_the_call) {
  const time_point now = loop.now();
  BOOST_TEST((deadline{}.from(now) == never));
  BOOST_TEST((deadline{5s}.from(now) == now + 5s));
  BOOST_TEST((deadline{now + 7s}.from(now + 1s) == now + 7s));
  BOOST_TEST((deadline{duration::max() - 1ns}.from(now) == never));  // no overflow
}

BOOST_AUTO_TEST_CASE(in_time_it_changes_nothing) {
  BOOST_TEST(loop.run(with_timeout(10s, value_after(1s, 5))) == 5);
  BOOST_TEST(loop.run(with_deadline(never, value_after(1s, 6))) == 6);
}

BOOST_AUTO_TEST_CASE(late_work_is_stopped_at_the_deadline) {
  const time_point begun = loop.now();
  BOOST_CHECK_EXCEPTION(loop.run(with_timeout(2s, value_after(1h, 5))), failure, timed_out);
  BOOST_TEST((loop.now() - begun == 2s));
}

BOOST_AUTO_TEST_CASE(the_nearer_of_two_decides) {
  using both = std::pair<duration, duration>;
  for (const auto& [outer, inner] : {both{3s, 1h}, both{1h, 3s}}) {
    const time_point begun = loop.now();
    BOOST_CHECK_EXCEPTION(loop.run(with_timeout(outer, with_timeout(inner, value_after(2h, 1)))), failure,
                          timed_out);
    BOOST_TEST((loop.now() - begun == 3s));
  }
}

task<time_point> visible_deadline() {
  const environment& here = co_await this_environment{};
  co_return here.deadline;
}

BOOST_AUTO_TEST_CASE(work_sees_the_nearest_deadline) {
  const time_point now = loop.now();
  BOOST_TEST((loop.run(visible_deadline()) == never));
  BOOST_TEST((loop.run(with_timeout(1s, with_timeout(1h, visible_deadline()))) == now + 1s));
  BOOST_TEST((loop.run(with_timeout(1h, with_timeout(1s, visible_deadline()))) == now + 1s));
}

task<int> inner_times_out_outer_goes_on() {
  int outcome = 0;
  try {
    task<int> late = value_after(1h, 1);
    outcome = co_await with_timeout(1s, std::move(late));
  } catch (const failure& f) {
    outcome = f.why() == errc::timed_out ? 10 : 20;
  }
  // The outer deadline has not passed: this level may go on working.
  const int rest = co_await value_after(1s, 1);
  co_return outcome + rest;
}

BOOST_AUTO_TEST_CASE(an_inner_deadline_leaves_the_outer_work_alone) {
  BOOST_TEST(loop.run(with_timeout(5s, inner_times_out_outer_goes_on())) == 11);
}

BOOST_AUTO_TEST_CASE(a_passed_deadline_stops_at_the_first_wait) {
  const time_point begun = loop.now();
  BOOST_CHECK_EXCEPTION(loop.run(with_deadline(begun - 1s, value_after(1h, 1))), failure, timed_out);
  BOOST_TEST((loop.now() == begun));
}

task<int> ignores_the_stop() {
  int ended = 0;
  try {
    co_await sleep_for(1h);
  } catch (const failure&) {
    ended = 7;
  }
  co_return ended;
}

BOOST_AUTO_TEST_CASE(work_that_ends_well_after_a_stop_has_ended_well) {
  BOOST_TEST(loop.run(with_timeout(1s, ignores_the_stop())) == 7);
}

// The completion and the deadline fall on one instant: one of them wins, once, and nothing is left behind.
BOOST_AUTO_TEST_CASE(completion_and_deadline_at_the_same_instant) {
  for (int order = 0; order < 2; ++order) {
    int got = 0;
    try {
      got = order == 0 ? loop.run(with_timeout(1s, value_after(1s, 5)))
                       : loop.run(with_timeout(1s, with_timeout(1s, value_after(1s, 5))));
    } catch (const failure& f) {
      BOOST_TEST((f.why() == errc::timed_out));
      got = 5;
    }
    BOOST_TEST(got == 5);
  }
  loop.run(sleep_for(1h));  // no timer of the gone environments fires
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
