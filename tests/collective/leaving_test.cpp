// A rank that leaves: what needs it ends on every rank, what does not goes on, and nobody is blamed for what
// he calls after that.
#include "rig.hpp"
#include <chorale/async/sleep.hpp>

#include <boost/test/unit_test.hpp>

using namespace chorale;
using namespace chorale::testing;
using namespace std::chrono_literals;

namespace {

constexpr medium media[] = {medium::shm, medium::tcp};

struct fixture {
  engine loop{engine_options{backend_kind::automatic, duration{0}}};
  std::vector<std::vector<float>> data = std::vector<std::vector<float>>(8, std::vector<float>(9000, 1));
  std::vector<error> outcomes = std::vector<error>(8);
};

task<void> reduce(core& on, std::span<float> values, error& outcome, std::uint64_t key = default_lane) {
  auto r = co_await as_result(place(on, all_reduce_of(values, values), key));
  if (!r) outcome = r.error();
}

/// What the guard tells the others when rank 0 has left. Its wires stay, so only what it owes is missing.
void tell_that_rank_0_left(ranks& all) {
  for (rank_t r = 1; r < all.size(); ++r) all[r].on_left(0, 0);
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(leaving, fixture)

BOOST_AUTO_TEST_CASE(a_collective_ends_on_every_rank_also_on_those_that_wait_for_others) {
  for (const char* algorithm : {"ring", "recursive_doubling", "slice_owner", "tiny"}) {
    BOOST_TEST_CONTEXT(algorithm) {
      selection_settings settings;
      settings.force(*parse_algorithm(algorithm));
      const std::size_t count = std::string_view{algorithm} == "tiny" ? 4 : 9000;
      ranks all{loop, 5, medium::shm, settings};
      outcomes.assign(outcomes.size(), {});
      auto body = [&](core& on, rank_t r) -> task<void> {
        return [](ranks& every, core& c, rank_t rank, std::span<float> values,
                  error& ended) -> task<void> {
          if (rank == 0) {  // never calls
            task<void> pause = sleep_for(5ms);
            co_await std::move(pause);
            tell_that_rank_0_left(every);
            co_return;
          }
          co_await reduce(c, values, ended);
        }(all, on, r, std::span{data[static_cast<std::size_t>(r)]}.first(count),
                                outcomes[static_cast<std::size_t>(r)]);
      };
      all.run(body);
      for (rank_t r = 1; r < 5; ++r) {
        const error& ended = outcomes[static_cast<std::size_t>(r)];
        BOOST_TEST((ended == errc::peer_left), "rank " << r << ": " << ended.message());
        BOOST_TEST(ended.culprit() == 0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(messages_between_others_go_on_and_calls_that_come_after_match_nothing) {
  ranks all{loop, 3, medium::shm};
  std::vector<error> later(3), talk(3);
  auto body = [&](core& on, rank_t r) -> task<void> {
    return [](ranks& every, core& c, rank_t rank, std::vector<std::vector<float>>& values, error& first,
              error& second, error& message) -> task<void> {
      if (rank == 0) {
        tell_that_rank_0_left(every);
        co_return;
      }
      auto& mine = values[static_cast<std::size_t>(rank)];
      co_await reduce(c, std::span{mine}.first(100), first);
      // The two call different things now, as programs do that react to an error: neither is to blame.
      auto next = rank == 1 ? place(c, barrier_call()) : place(c, all_reduce_of(mine, mine));
      auto ended = co_await as_result(std::move(next));
      if (!ended) second = ended.error();
      auto said = co_await as_result(place(c, message_of(std::span{mine}.first(9), 3 - rank, rank == 1)));
      if (!said) message = said.error();
    }(all, on, r, data, outcomes[static_cast<std::size_t>(r)], later[static_cast<std::size_t>(r)],
                                             talk[static_cast<std::size_t>(r)]);
  };
  all.run(body);
  for (const std::size_t r : {1U, 2U}) {
    BOOST_TEST((outcomes[r] == errc::peer_left), outcomes[r].message());
    BOOST_TEST((later[r] == errc::peer_left), later[r].message());
    BOOST_TEST(!talk[r], talk[r].message());
  }
}

BOOST_AUTO_TEST_CASE(a_message_sent_before_leaving_is_received_after) {
  ranks all{loop, 2, medium::shm};
  std::vector<error> too_late(1);
  auto body = [&](core& on, rank_t r) -> task<void> {
    return [](ranks& every, core& c, rank_t rank, std::span<float> values, error& ended,
              error& none) -> task<void> {
      if (rank == 0) {
        auto sent = co_await as_result(place(c, message_of(values.first(20), 1, true)));
        if (!sent) ended = sent.error();
        tell_that_rank_0_left(every);
        co_return;
      }
      task<void> pause = sleep_for(10ms);  // the message and the news of the leaving are here by then
      co_await std::move(pause);
      auto came = co_await as_result(place(c, message_of(values.first(20), 0, false)));
      if (!came) ended = came.error();
      auto another = co_await as_result(place(c, message_of(values.first(20), 0, false)));
      if (!another) none = another.error();
    }(all, on, r, data[static_cast<std::size_t>(r)], outcomes[static_cast<std::size_t>(r)], too_late[0]);
  };
  data[0].assign(data[0].size(), 7);
  all.run(body);
  BOOST_TEST(!outcomes[0], outcomes[0].message());
  BOOST_TEST(!outcomes[1], outcomes[1].message());
  BOOST_TEST(data[1][19] == 7.0F);
  BOOST_TEST((too_late[0] == errc::peer_left), too_late[0].message());
}

BOOST_AUTO_TEST_CASE(a_lane_that_a_peer_ended_before_its_first_use_here_says_why) {
  for (const medium over : media) {
    ranks all{loop, 2, over};
    outcomes.assign(outcomes.size(), {});
    auto body = [&](core& on, rank_t r) -> task<void> {
      return [](core& c, rank_t rank, std::span<float> values, error& ended) -> task<void> {
        if (rank == 1) {
          task<void> pause = sleep_for(30ms);
          co_await std::move(pause);
          co_await reduce(c, values, ended, 5);
          co_return;
        }
        auto r0 = co_await as_result(place(c, all_reduce_of(values, values), 5, deadline{5ms}));
        if (!r0) ended = r0.error();
        task<void> pause = sleep_for(40ms);
        co_await std::move(pause);
      }(on, r, data[static_cast<std::size_t>(r)], outcomes[static_cast<std::size_t>(r)]);
    };
    all.run(body);
    BOOST_TEST((outcomes[0] == errc::timed_out), outcomes[0].message());
    BOOST_TEST((outcomes[1] == errc::timed_out), name_of(over) << ": " << outcomes[1].message());
    BOOST_TEST(outcomes[1].culprit() == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_closed_epoch_refuses_and_is_unused_when_its_handles_are_gone) {
  ranks all{loop, 2, medium::shm};
  auto body = [&](core& on, rank_t r) -> task<void> {
    return [](core& c, std::span<float> values, error& ended) -> task<void> {
      std::optional<ticket> held{place(c, all_reduce_of(values, values))};
      c.close({});
      if (c.unused()) ended = error{errc::invalid_state, "a ticket refers to it"};
      held.reset();
      if (!c.unused()) ended = error{errc::invalid_state, "nothing refers to it any more"};
      auto refused = co_await as_result(place(c, barrier_call()));
      if (refused || refused.error().code() != errc::revoked || !c.unused())
        ended = error{errc::invalid_state, "a call on a closed epoch"};
    }(on, data[static_cast<std::size_t>(r)], outcomes[static_cast<std::size_t>(r)]);
  };
  all.run(body);
  BOOST_TEST(!outcomes[0], outcomes[0].message());
  BOOST_TEST(!outcomes[1], outcomes[1].message());
}

BOOST_AUTO_TEST_SUITE_END()
