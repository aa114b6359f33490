// Stopped ranks are named after the peer timeout; computing ones are not, however busy.
#include "rank_processes.hpp"

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <thread>

using namespace guard_test;
using chorale::call_state;
using chorale::errc;
using chorale::rank_t;

namespace {

chorale::guard_options impatient(std::chrono::nanoseconds timeout) {
  chorale::guard_options o;
  o.peer_timeout = timeout;
  o.question_after = 50ms;
  return o;
}

std::vector<rank_t> everybody(rank_t size) {
  std::vector<rank_t> ranks;
  for (rank_t r = 0; r < size; ++r) ranks.push_back(r);
  return ranks;
}

/// Waits for everybody in operation 9 until told to stop.
void wait_for_all(rank_process& me, rank_t size) {
  auto m = me.join();
  me.await_order(1);
  const auto ranks = everybody(size);
  const auto op = m.pending(5, 9, ranks, clock::now());
  me.await_order(2);
  m.done(op);
  me.mine().numbers[0] = m.counters().questions_sent;
  me.mine().numbers[1] = m.counters().answers_sent;
  for (rank_t r = 0; r < size && r < 6; ++r)
    me.mine().numbers[static_cast<std::size_t>(2 + r)] = static_cast<std::uint64_t>(m.last_answer(r));
}

void check_stopped_rank_is_named(std::vector<int> hosts) {
  const auto size = static_cast<rank_t>(hosts.size());
  world w{{.hosts = std::move(hosts), .guard = impatient(600ms)}};
  w.run([size](rank_process& me) { wait_for_all(me, size); });
  BOOST_REQUIRE(w.all_joined());
  const auto before = now_ns();
  w.kill(1, SIGSTOP);
  w.order_all(1);
  for (rank_t r = 0; r < size; ++r) {
    if (r == 1) continue;
    BOOST_TEST_CONTEXT("rank " << r) {
      BOOST_REQUIRE(w.of(r).causes.reaches(1, 10s));
      BOOST_TEST(w.of(r).first.cause == static_cast<std::int32_t>(errc::peer_unresponsive));
      BOOST_TEST(w.of(r).first.culprit == 1);
      BOOST_TEST(w.of(r).first.ticket == 9U);
      BOOST_TEST(w.of(r).first.at - before >= 600'000'000);
    }
  }
  w.kill(1, SIGCONT);
  // What it hears when it wakes up: that it was given up.
  BOOST_REQUIRE(w.of(1).causes.reaches(1, 10s));
  BOOST_TEST(w.of(1).first.culprit == 1);
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(guard_unresponsive)

BOOST_AUTO_TEST_CASE(a_stopped_host_mate_is_named) { check_stopped_rank_is_named({0, 0, 0}); }
BOOST_AUTO_TEST_CASE(a_stopped_remote_rank_is_named) { check_stopped_rank_is_named({0, 1, 2}); }

BOOST_AUTO_TEST_CASE(a_stopped_rank_on_the_way_is_not_confused_with_those_behind_it) {
  // Sixteen hosts: the first way from 0 to 3 leads over 1, which is stopped and for which nobody waits.
  std::vector<int> hosts;
  for (int h = 0; h < 16; ++h) hosts.push_back(h);
  world w{{.hosts = hosts, .guard = impatient(800ms)}};
  w.run([](rank_process& me) {
    auto m = me.join();
    me.await_order(1);
    const std::array<rank_t, 1> ranks{3};
    if (me.rank() == 0) static_cast<void>(m.pending(5, 9, ranks, clock::now()));
    me.await_order(2);
    me.mine().numbers[0] = static_cast<std::uint64_t>(m.last_answer(3));
  });
  w.of(3).call_state = static_cast<std::uint8_t>(call_state::running);
  BOOST_REQUIRE(w.all_joined());
  w.kill(1, SIGSTOP);
  w.order_all(1);
  BOOST_TEST(!w.of(0).causes.reaches(1, 2 * 800ms));
  w.kill(1, SIGCONT);
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
  BOOST_TEST(w.of(0).numbers[0] == static_cast<std::uint64_t>(call_state::running));
}

BOOST_AUTO_TEST_CASE(a_silent_process_ends_its_other_communicators_too) {
  world w{{.hosts = {0, 0, 1}, .shared_process_keys = true, .guard = impatient(400ms)}, 2};
  w.run([](rank_process& me) {
    auto waited_in = me.join(0);
    const auto idle = me.join(1);
    me.await_order(1);
    const std::array<rank_t, 1> ranks{1};
    if (me.rank() == 0) static_cast<void>(waited_in.pending(5, 9, ranks, clock::now()));
    me.await_order(2);
    me.mine().numbers[0] = idle.cause() && idle.cause()->cause == errc::peer_unresponsive ? 1 : 0;
  });
  BOOST_REQUIRE(w.all_joined());
  w.kill(1, SIGSTOP);
  w.order_all(1);
  for (const rank_t r : {0, 2}) BOOST_TEST(w.of(r).causes.reaches(2, 5s));
  w.kill(1, SIGCONT);
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
  BOOST_TEST(w.of(0).numbers[0] == 1U);
  BOOST_TEST(w.of(2).numbers[0] == 1U);
}

BOOST_AUTO_TEST_CASE(computing_ranks_answer_for_three_timeouts_under_full_load) {
  world w{{.hosts = {0, 0, 1}, .guard = impatient(700ms)}};
  w.run([](rank_process& me) {
    auto m = me.join();
    me.await_order(1);
    if (me.rank() == 0) {
      const std::array<rank_t, 2> ranks{1, 2};
      const auto op = m.pending(5, 9, ranks, clock::now());
      me.await_order(2);
      m.done(op);
      me.mine().numbers[0] = m.counters().questions_sent;
      me.mine().numbers[1] = static_cast<std::uint64_t>(m.last_answer(1));
      me.mine().numbers[2] = static_cast<std::uint64_t>(m.last_answer(2));
      return;
    }
    // More spinning threads than cores, and no call into the library.
    std::atomic<bool> stop{false};
    std::vector<std::thread> spinners;
    for (int i = 0; i < 3; ++i)
      spinners.emplace_back([&stop] {
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
    me.await_order(2);
    stop = true;
    for (auto& t : spinners) t.join();
  });
  w.of(1).call_state = static_cast<std::uint8_t>(call_state::not_called);
  w.of(2).call_state = static_cast<std::uint8_t>(call_state::running);
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  BOOST_TEST(!w.of(0).causes.reaches(1, 3 * 700ms));
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
  BOOST_TEST(w.of(0).causes.get() == 0U);
  BOOST_TEST(w.of(0).numbers[0] >= 8U);
  BOOST_TEST(w.of(0).numbers[1] == static_cast<std::uint64_t>(call_state::not_called));
  BOOST_TEST(w.of(0).numbers[2] == static_cast<std::uint64_t>(call_state::running));
}

BOOST_AUTO_TEST_CASE(an_asker_that_was_stopped_itself_blames_nobody) {
  world w{{.hosts = {0, 0}, .guard = impatient(500ms)}};
  w.run([](rank_process& me) { wait_for_all(me, 2); });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  for (int i = 0; i < 2; ++i) {
    w.kill(0, SIGSTOP);
    // Rank 1 may well give the stopped rank 0 up; this is about what rank 0 says of rank 1.
    BOOST_TEST(!w.of(0).causes.reaches(1, 250ms));
    w.kill(0, SIGCONT);
    BOOST_TEST(!w.of(0).causes.reaches(1, 250ms));
  }
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
  BOOST_TEST(w.of(0).causes.get() == 0U);
}

BOOST_AUTO_TEST_CASE(nothing_is_sent_while_nothing_is_pending_or_all_is_quick) {
  world w{{.hosts = {0, 0, 1}, .guard = impatient(500ms)}};
  w.run([](rank_process& me) {
    auto m = me.join();
    const auto ranks = everybody(3);
    for (int i = 0; i < 200; ++i) m.done(m.pending(1, static_cast<std::uint64_t>(i), ranks, clock::now()));
    me.mine().phase.set(1);
    me.await_order(1);
    me.mine().numbers[0] = m.counters().questions_sent;
  });
  BOOST_REQUIRE(w.all_joined());
  BOOST_TEST(!w.of(0).causes.reaches(1, 300ms));
  w.order_all(1);
  BOOST_TEST(w.all_ended_well());
  for (rank_t r = 0; r < 3; ++r) BOOST_TEST(w.of(r).numbers[0] == 0U);
}

BOOST_AUTO_TEST_CASE(a_timeout_of_zero_never_judges) {
  world w{{.hosts = {0, 0}, .guard = impatient(0ms)}};
  w.run([](rank_process& me) { wait_for_all(me, 2); });
  BOOST_REQUIRE(w.all_joined());
  w.kill(1, SIGSTOP);
  w.order_all(1);
  BOOST_TEST(!w.of(0).causes.reaches(1, 700ms));
  w.kill(1, SIGCONT);
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
}

BOOST_AUTO_TEST_SUITE_END()
