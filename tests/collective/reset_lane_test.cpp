// Lanes that ended begin anew, without the communicator; and what many of them leave behind: nothing.
#include "rig.hpp"
#include <chorale/api/description.hpp>
#include <chorale/async/sleep.hpp>

#include <boost/test/unit_test.hpp>
#include <malloc.h>

#include <string>

using namespace chorale;
using namespace chorale::testing;
using namespace std::chrono_literals;

namespace {

constexpr medium media[] = {medium::shm, medium::tcp};

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error{"not so: " + what};
}

/// A handle, as the api has them.
class handle {
 public:
  handle(core& on, std::uint64_t key) : on_{on}, lane_{*on.open_lane(key)} {}
  handle(const handle&) = delete;
  handle& operator=(const handle&) = delete;
  ~handle() { on_.close_handle(*lane_); }

  [[nodiscard]] ticket call(const described_call& described, deadline limit = {}) {
    detail::call_place place;
    place.what = described.what;
    place.what.expires = limit.from(on_.loop().now());
    place.lane = lane_;
    place.inside = &on_;
    place.number = on_.take_ticket(*lane_, place.what);
    return ticket{std::move(place)};
  }
  /// As `lane::reset`.
  [[nodiscard]] ticket reset(deadline limit = {}) {
    auto renewed = on_.renew_lane(*lane_);
    expect(static_cast<bool>(renewed), "it can be reset");
    lane_ = *renewed;
    return call(barrier(), limit);
  }
  [[nodiscard]] lane_state& operator*() const { return *lane_; }

 private:
  core& on_;
  lane_state* lane_;
};

task<error> outcome_of(ticket t) {
  as_result_of<ticket> awaited = as_result(std::move(t));
  auto r = co_await std::move(awaited);
  co_return r ? error{} : r.error();
}

task<void> add(handle& on, float expected) {
  std::vector<float> one(3000, 1);
  co_await on.call(all_reduce(one));
  expect(one.back() == expected, "a sum");
}

/// One after the other: a deadline, a mismatch, a dropped ticket, and a reset of what has not ended.
task<void> fail_and_go_on(core& c, rank_t me, std::uint64_t key) {
  handle lane{c, key};
  handle other{c, 99};
  const auto n = static_cast<float>(c.size());
  std::vector<float> data(3000, 1);
  for (int way = 0; way < 8; ++way) {
    switch (way % 4) {
      case 0:
        if (me == 0) {
          const error late = co_await outcome_of(lane.call(all_reduce(data), deadline{2ms}));
          // Another may have reset it sooner than that.
          expect(late == errc::timed_out || late == errc::cancelled, late.message());
        }
        break;
      case 1: {
        ticket differs = me == 0 ? lane.call(all_reduce(data)) : lane.call(barrier());
        const error e = co_await outcome_of(std::move(differs));
        expect(e == errc::mismatch, e.message());
        break;
      }
      case 2:
        if (me == c.size() - 1) {
          ticket unused = lane.call(barrier());
        }
        break;
      default:
        break;
    }
    co_await lane.reset();
    task<void> again = add(lane, n);
    co_await std::move(again);
    task<void> beside = add(other, n);
    co_await std::move(beside);
  }
}

/// What stays of a lane that was used, failed and reset, and dropped.
task<void> use_up(core& c, rank_t me, std::uint64_t key) {
  handle lane{c, key};
  float x = 1;
  const std::span<float> one{&x, 1};
  co_await lane.call(all_reduce(one));
  co_await lane.call(me == 0 ? send(one, 1, 3) : recv(one, any_source, any_tag));
  if (key % 4 != 0) co_return;
  ticket differs = me == 0 ? lane.call(all_reduce(one)) : lane.call(barrier());
  const error e = co_await outcome_of(std::move(differs));
  expect(e == errc::mismatch, e.message());
  co_await lane.reset();
  co_await lane.call(all_reduce(one));
}

task<void> use_up(core& c, rank_t me, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t key = first; key < first + count; ++key) {
    task<void> one = use_up(c, me, key);
    co_await std::move(one);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(reset_lanes)

BOOST_AUTO_TEST_CASE(whatever_ended_it_and_also_the_communicators_own) {
  for (const medium over : media)
    for (const std::uint64_t key : {default_lane, std::uint64_t{7}})
      for (const rank_t n : {2, 4})
        BOOST_TEST_CONTEXT(name_of(over) << ", lane " << key << ", " << n << " ranks") {
          engine loop{engine_options{backend_kind::automatic, duration{0}}};
          ranks all{loop, n, over};
          auto body = [key](core& on, rank_t r) -> task<void> { return fail_and_go_on(on, r, key); };
          all.run(body);
          for (rank_t r = 0; r < n; ++r) {
            BOOST_TEST(all[r].lane_count() == 1U);
            BOOST_TEST(!all[r].cause());
          }
        }
}

BOOST_AUTO_TEST_CASE(a_reset_that_not_all_make_in_time_is_made_again) {
  for (const medium over : media) {
    engine loop{engine_options{backend_kind::automatic, duration{0}}};
    ranks all{loop, 2, over};
    auto body = [](core& on, rank_t r) -> task<void> {
      return [](core& c, rank_t me) -> task<void> {
        handle lane{c, 7};
        handle aside{c, 8};
        co_await lane.call(barrier());
        if (me == 0) {
          const error e = co_await outcome_of(lane.reset(deadline{2ms}));
          expect(e == errc::timed_out, e.message());
          co_await aside.call(barrier());
        } else {
          co_await aside.call(barrier());
          const error e = co_await outcome_of(lane.reset());
          expect(e == errc::timed_out && e.culprit() == 0, e.message());
        }
        co_await lane.reset();
        task<void> again = add(lane, 2);
        co_await std::move(again);
      }(on, r);
    };
    all.run(body);
  }
}

BOOST_AUTO_TEST_CASE(calls_before_the_others_have_reset_wait_for_them) {
  engine loop{engine_options{backend_kind::automatic, duration{0}}};
  ranks all{loop, 2, medium::shm};
  auto body = [](core& on, rank_t r) -> task<void> {
    return [](core& c, rank_t me) -> task<void> {
      handle lane{c, 7};
      handle aside{c, 8};
      std::vector<float> data(50000, 1), small(10, 1);
      co_await lane.call(barrier());
      if (me == 1) co_await aside.call(barrier());
      started met = lane.reset().start();
      started sum = lane.call(all_reduce(data)).start();
      started few = lane.call(all_reduce(small)).start();
      if (me == 0) co_await aside.call(barrier());
      co_await std::move(met);
      co_await std::move(sum);
      co_await std::move(few);
      expect(data.back() == 2 && small.back() == 2, "sums");
    }(on, r);
  };
  all.run(body);
}

BOOST_AUTO_TEST_CASE(another_handle_of_a_lane_that_was_reset_is_told) {
  engine loop{engine_options{backend_kind::automatic, duration{0}}};
  ranks all{loop, 1, medium::shm};
  auto body = [](core& on, rank_t) -> task<void> {
    return [](core& c) -> task<void> {
      handle lane{c, 7};
      handle twin{c, 7};
      co_await lane.reset();
      const error e = co_await outcome_of(twin.call(barrier()));
      expect(e == errc::revoked || e == errc::cancelled, e.message());
      auto renewed = c.renew_lane(*twin);
      expect(!renewed && renewed.error() == errc::invalid_state, "which is the lane");
      handle anew{c, 7};
      expect(&*anew == &*lane, "the key means what followed");
      co_await anew.call(barrier());
    }(on);
  };
  all.run(body);
  BOOST_TEST(all[0].lane_count() == 1U);
}

// Ended keys are remembered up to a number; beyond that nothing may grow, neither memory nor lanes.
BOOST_AUTO_TEST_CASE(thousands_of_lanes_used_failed_reset_and_dropped_leave_nothing) {
#ifdef CHORALE_SANITIZED
  constexpr std::uint64_t warm_up = 300, lanes = 300;
#else
  constexpr std::uint64_t warm_up = 60'000, lanes = 20'000;
#endif
  engine loop{engine_options{backend_kind::automatic, duration{0}}};
  ranks all{loop, 2, medium::shm};
  std::uint64_t first = 1;
  std::uint64_t count = warm_up;
  auto body = [&](core& on, rank_t r) -> task<void> { return use_up(on, r, first, count); };
  all.run(body);
  [[maybe_unused]] const std::size_t before = ::mallinfo2().uordblks;
  first += count;
  count = lanes;
  all.run(body);
#ifndef CHORALE_SANITIZED
  const std::size_t after = ::mallinfo2().uordblks;
  BOOST_TEST(after < before + 64 * 1024, before << " bytes before, " << after << " after");
#endif
  for (rank_t r = 0; r < 2; ++r) {
    BOOST_TEST(all[r].lane_count() == 1U);
    BOOST_TEST(all[r].link_to(1 - r).early_arrivals() == 0U);
    BOOST_TEST(all[r].in_flight_count() == 0U);
  }
}

BOOST_AUTO_TEST_SUITE_END()
