// How calls that go wrong end: mismatch, deadline, cancel, drop; and that other lanes do not notice.
#include "rig.hpp"
#include <chorale/async/sleep.hpp>
#include <chorale/async/with_environment.hpp>

#include <boost/test/unit_test.hpp>

using namespace chorale;
using namespace chorale::testing;
using namespace std::chrono_literals;

namespace {

struct fixture {
  engine loop{engine_options{backend_kind::automatic, duration{0}}};
  std::vector<float> a = std::vector<float>(10000, 1);
  std::vector<float> b = std::vector<float>(10000, 1);
  std::vector<error> outcomes = std::vector<error>(8);
};

task<void> reduce(core& on, std::span<float> data, error& outcome, std::uint64_t key = default_lane,
                  deadline limit = {}) {
  auto r = co_await as_result(place(on, all_reduce_of(data, data), key, limit));
  if (!r) outcome = r.error();
}

task<void> reduce_task(core& on, std::span<float> data) { co_await place(on, all_reduce_of(data, data)); }

constexpr medium media[] = {medium::shm, medium::tcp};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(failure_of_calls, fixture)

BOOST_AUTO_TEST_CASE(counts_that_differ_end_with_both_signatures_on_every_size) {
  for (const medium over : media)
    for (const auto [mine, theirs] :
         {std::pair{1, 2}, {1, 1000}, {1000, 1001}, {9000, 9001}, {8, 10000}, {0, 1}}) {
      BOOST_TEST_CONTEXT(name_of(over) << " " << mine << " against " << theirs) {
        ranks all{loop, 2, over};
        std::vector<error> ended(2);
        auto body = [&](core& on, rank_t r) {
          auto& data = r == 0 ? a : b;
          return reduce(on, std::span{data}.first(static_cast<std::size_t>(r == 0 ? mine : theirs)),
                        ended[static_cast<std::size_t>(r)]);
        };
        a.assign(a.size(), 1);
        b.assign(b.size(), 1);
        all.run(body);
        for (const error& e : ended) {
          BOOST_TEST((e == errc::mismatch), e.message());
          BOOST_TEST(e.detail().find("of " + std::to_string(mine) + " ") != std::string::npos, e.message());
          BOOST_TEST(e.detail().find("of " + std::to_string(theirs) + " ") != std::string::npos, e.message());
        }
        BOOST_TEST((a == std::vector<float>(a.size(), 1)), "a disagreeing rank's data was used");
      }
    }
}

BOOST_AUTO_TEST_CASE(kinds_that_differ_mismatch) {
  for (const medium over : media) {
    ranks all{loop, 2, over};
    auto body = [&](core& on, rank_t r) -> task<void> {
      return [](core& c, rank_t rank, std::span<float> data, error& outcome) -> task<void> {
        ticket t = rank == 0 ? place(c, all_reduce_of(data, data)) : place(c, barrier_call());
        auto result = co_await as_result(std::move(t));
        if (!result) outcome = result.error();
      }(on, r, std::span{a}.first(4), outcomes[static_cast<std::size_t>(r)]);
    };
    all.run(body);
    BOOST_TEST((outcomes[0] == errc::mismatch), outcomes[0].message());
    BOOST_TEST((outcomes[1] == errc::mismatch), outcomes[1].message());
  }
}

// The refusing rank sends nothing of its call: without its signature, ranks that wait for it waited for ever.
BOOST_AUTO_TEST_CASE(a_call_that_one_rank_cannot_serve_ends_the_different_calls_of_others) {
  for (const medium over : media) {
    ranks all{loop, 3, over};
    std::vector<std::vector<float>> data(3, std::vector<float>(100, 1));
    auto body = [&](core& on, rank_t r) -> task<void> {
      return [](core& c, rank_t rank, std::span<float> mine, error& outcome) -> task<void> {
        call what = all_reduce_of(mine, mine);
        if (rank == 2) what.op = reduction::bit_or;
        auto result = co_await as_result(place(c, what));
        if (!result) outcome = result.error();
      }(on, r, data[static_cast<std::size_t>(r)], outcomes[static_cast<std::size_t>(r)]);
    };
    all.run(body);
    BOOST_TEST((outcomes[0] == errc::mismatch), outcomes[0].message());
    BOOST_TEST((outcomes[1] == errc::mismatch), outcomes[1].message());
    BOOST_TEST((outcomes[2] == errc::unsupported || outcomes[2] == errc::mismatch), outcomes[2].message());
  }
}

BOOST_AUTO_TEST_CASE(a_call_that_no_rank_can_serve_leaves_the_lane_alone) {
  for (const medium over : media) {
    ranks all{loop, 3, over};
    std::vector<std::vector<float>> data(3, std::vector<float>(100, 1));
    auto body = [&](core& on, rank_t r) -> task<void> {
      return [](core& c, std::span<float> mine, error& outcome) -> task<void> {
        call what = all_reduce_of(mine, mine);
        what.op = reduction::bit_or;
        auto refused = co_await as_result(place(c, what));
        if (!refused) outcome = refused.error();
        co_await place(c, all_reduce_of(mine, mine));
      }(on, data[static_cast<std::size_t>(r)], outcomes[static_cast<std::size_t>(r)]);
    };
    all.run(body);
    for (std::size_t r = 0; r < 3; ++r) {
      BOOST_TEST((outcomes[r] == errc::unsupported), outcomes[r].message());
      BOOST_TEST(data[r][99] == 3.0F);
    }
  }
}

// Their last step may be a send that completes inside the receive before it, and then nobody holds them.
BOOST_AUTO_TEST_CASE(operations_that_nobody_awaits_finish) {
  for (const medium over : media)
    for (const auto kind : {algorithm_kind::recursive_doubling, algorithm_kind::ring}) {
      selection_settings settings;
      settings.force(kind);
      ranks all{loop, 5, over, settings};
      std::vector<std::vector<float>> data(5, std::vector<float>(15000, 1));
      auto body = [&](core& on, rank_t r) -> task<void> {
        return [](core& c, std::span<float> mine) -> task<void> {
          for (std::size_t i = 0; i < 3; ++i) {
            const auto part = mine.subspan(5000 * i, 5000);
            static_cast<void>(place(c, all_reduce_of(part, part)).start());
          }
          while (c.in_flight_count() != 0) co_await yield{};
        }(on, data[static_cast<std::size_t>(r)]);
      };
      all.run(body);
      for (const auto& mine : data) BOOST_TEST((mine == std::vector<float>(15000, 5)));
    }
}

BOOST_AUTO_TEST_CASE(a_deadline_ends_the_lane_everywhere_and_no_other) {
  for (const medium over : media) {
    ranks all{loop, 2, over};
    std::vector<float> other(100, 1), mine(100, 2);
    auto body = [&](core& on, rank_t r) -> task<void> {
      return [](core& c, rank_t rank, std::vector<error>& ended, std::span<float> x,
                std::span<float> y) -> task<void> {
        if (rank == 0) co_await reduce(c, x.first(5000), ended[0], default_lane, deadline{20ms});
        if (rank == 1) co_await sleep_for(60ms);
        if (rank == 1) co_await reduce(c, y.first(5000), ended[1]);
        error late;
        co_await reduce(c, x.first(1), late);
        ended[static_cast<std::size_t>(2 + rank)] = late;
      }(on, r, outcomes, a, b);
    };
    all.run(body);
    BOOST_TEST((outcomes[0] == errc::timed_out), outcomes[0].message());
    BOOST_TEST((outcomes[1] == errc::timed_out), outcomes[1].message());
    BOOST_TEST(outcomes[1].culprit() == 0);
    BOOST_TEST((outcomes[2] == errc::revoked), outcomes[2].message());
    BOOST_TEST((outcomes[3] == errc::revoked), outcomes[3].message());
    BOOST_TEST(outcomes[2].detail() ==
               "the lane ended: timed_out: the deadline passed before the operation ended");
    BOOST_TEST(outcomes[3].detail().find("rank 0 ended the lane") != std::string::npos,
               outcomes[3].message());
    auto second = [&](core& on, rank_t r) -> task<void> {
      return reduce(on, r == 0 ? other : mine, outcomes[static_cast<std::size_t>(4 + r)], 77);
    };
    all.run(second);
    BOOST_TEST(!outcomes[4], outcomes[4].message());
    BOOST_TEST(!outcomes[5], outcomes[5].message());
    BOOST_TEST(other[99] == 3.0F);
  }
}

BOOST_AUTO_TEST_CASE(a_stop_request_ends_an_operation_without_the_peer) {
  for (const medium over : media) {
    ranks all{loop, 2, over};
    auto body = [&](core& on, rank_t r) -> task<void> {
      return [](core& c, rank_t rank, std::vector<error>& ended, std::span<float> data) -> task<void> {
        if (rank == 1) co_return;  // never calls
        task<result<void>> bounded = as_result(with_timeout(20ms, reduce_task(c, data)));
        auto outcome = co_await std::move(bounded);
        if (!outcome) ended[0] = outcome.error();
        // The buffer is ours again: nothing may write to it, which ASan and the later check would see.
        std::ranges::fill(data, 5.0F);
      }(on, r, outcomes, a);
    };
    all.run(body);
    BOOST_TEST((outcomes[0] == errc::timed_out), outcomes[0].message());
    BOOST_TEST(a[0] == 5.0F);
  }
}

BOOST_AUTO_TEST_CASE(a_dropped_ticket_ends_the_peers_call) {
  for (const medium over : media) {
    ranks all{loop, 2, over};
    auto body = [&](core& on, rank_t r) -> task<void> {
      return [](core& c, rank_t rank, std::vector<error>& ended, std::span<float> data) -> task<void> {
        if (rank == 1) {
          {
            ticket unused = place(c, all_reduce_of(data, data));
          }
          co_return;
        }
        co_await reduce(c, data, ended[0]);
      }(on, r, outcomes, r == 0 ? std::span{a} : std::span{b});
    };
    all.run(body);
    BOOST_TEST((outcomes[0] == errc::dropped), outcomes[0].message());
    BOOST_TEST(outcomes[0].culprit() == 1);
  }
}

BOOST_AUTO_TEST_CASE(a_used_ticket_is_refused) {
  ranks all{loop, 1, medium::shm};
  auto body = [&](core& on, rank_t) -> task<void> {
    return [](core& c, std::vector<error>& ended, std::span<float> data) -> task<void> {
      ticket t = place(c, all_reduce_of(data, data));
      co_await std::move(t);
      auto again =
          co_await as_result(std::move(t));  // NOLINT(bugprone-use-after-move): the point of the test
      ended[0] = again.error();
    }(on, outcomes, a);
  };
  all.run(body);
  BOOST_TEST((outcomes[0] == errc::invalid_state), outcomes[0].message());
}

BOOST_AUTO_TEST_CASE(more_lanes_in_flight_than_allowed) {
  ranks all{loop, 2, medium::shm};
  auto body = [&](core& on, rank_t r) -> task<void> {
    return [](core& c, rank_t rank, std::vector<error>& ended, std::span<float> data) -> task<void> {
      if (rank == 1) co_return;
      std::vector<started> running;
      for (std::uint64_t key = 1; key <= 4096; ++key)
        running.push_back(place(c, all_reduce_of(data.first(1), data.first(1)), key).start());
      auto one_more = co_await as_result(place(c, all_reduce_of(data.first(1), data.first(1)), 5000));
      ended[0] = one_more.error();
      running.clear();  // adopted by the communicator
      c.leave();
    }(on, r, outcomes, a);
  };
  all.run(body);
  BOOST_TEST((outcomes[0] == errc::too_many_lanes), outcomes[0].message());
}

BOOST_AUTO_TEST_SUITE_END()
