// The same promises where a seccomp filter forbids what the guard would rather use.
#include "forbidden_calls.hpp"
#include "needs_calls.hpp"
#include "rank_processes.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <csignal>
#include <iostream>

using namespace guard_test;
using chorale::death_signal;
using chorale::errc;
using chorale::rank_t;
using chorale::testing::forbid_calls;

namespace {

/// By rank, what it may not call.
using rules = std::vector<std::vector<std::string>>;

chorale::guard_options impatient() {
  chorale::guard_options o;
  o.peer_timeout = 600ms;
  o.question_after = 50ms;
  return o;
}

void check_death(const rules& forbidden, death_signal expected, const char* name) {
  std::vector<double> slowest;
  for (int round = 0; round < 5; ++round) {
    world w{{.hosts = one_host(static_cast<int>(forbidden.size()))}};
    w.run([&forbidden](rank_process& me) {
      forbid_calls(forbidden[static_cast<std::size_t>(me.rank())]);
      auto m = me.join();
      me.await_order(1);
      // Everybody's revoke of a lane comes only after everybody has registered.
      if (!m.revoke(chorale::revoke_scope::lane, 1, errc::timed_out, -1, 1))
        throw std::runtime_error{"revoke"};
      me.await_order(2);
      me.mine().signal[0] = static_cast<std::uint8_t>(m.signal_for(2));
      me.mine().phase.set(1);
      me.await_order(3);
    });
    BOOST_REQUIRE(w.all_joined());
    w.order_all(1);
    for (rank_t r = 0; r < w.size(); ++r) {
      BOOST_REQUIRE(w.of(r).lane_causes.reaches(static_cast<std::uint32_t>(w.size()), 5s));
    }
    w.order_all(2);
    BOOST_REQUIRE(w.of(0).phase.reaches(1, 5s));
    BOOST_TEST((static_cast<death_signal>(w.of(0).signal[0].load()) == expected));
    const auto before = now_ns();
    w.kill(2, SIGKILL);
    std::int64_t last = 0;
    for (rank_t r = 0; r < w.size(); ++r) {
      if (r == 2) continue;
      BOOST_TEST_CONTEXT("rank " << r) {
        BOOST_REQUIRE(w.of(r).causes.reaches(1, 5s));
        BOOST_TEST(w.of(r).first.cause == static_cast<std::int32_t>(errc::peer_lost));
        BOOST_TEST(w.of(r).first.culprit == 2);
        last = std::max(last, w.of(r).first.at.load());
      }
    }
    slowest.push_back(static_cast<double>(last - before) / 1e6);
    w.order_all(3);
    BOOST_TEST(w.all_ended_well({2}));
  }
  std::sort(slowest.begin(), slowest.end());
  std::cout << name << ": kill -9, last watcher told after: median " << slowest[slowest.size() / 2]
            << " ms\n";
  BOOST_TEST(slowest[slowest.size() / 2] < 1000.0);
}

void check_crash(const rules& forbidden) {
  world w{{.hosts = one_host(static_cast<int>(forbidden.size()))}};
  w.run([&forbidden](rank_process& me) {
    forbid_calls(forbidden[static_cast<std::size_t>(me.rank())]);
    const auto m = me.join();
    me.await_order(1);
    if (me.rank() == 2) ::raise(SIGSEGV);
    me.await_order(2);
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  for (rank_t r = 0; r < w.size(); ++r) {
    if (r == 2) continue;
    BOOST_REQUIRE(w.of(r).causes.reaches(1, 5s));
    BOOST_TEST(w.of(r).first.detail == SIGSEGV);
  }
  w.order_all(2);
  BOOST_TEST(w.all_ended_well({2}));
}

void check_stop(const rules& forbidden) {
  world w{{.hosts = one_host(static_cast<int>(forbidden.size())), .guard = impatient()}};
  w.run([&forbidden](rank_process& me) {
    forbid_calls(forbidden[static_cast<std::size_t>(me.rank())]);
    auto m = me.join();
    me.await_order(1);
    const std::array<rank_t, 2> ranks{1, 2};
    if (me.rank() == 0) static_cast<void>(m.pending(1, 9, ranks, clock::now()));
    me.await_order(2);
  });
  BOOST_REQUIRE(w.all_joined());
  w.kill(2, SIGSTOP);
  w.order_all(1);
  for (const rank_t r : {0, 1}) {
    BOOST_REQUIRE(w.of(r).causes.reaches(1, 5s));
    BOOST_TEST(w.of(r).first.cause == static_cast<std::int32_t>(errc::peer_unresponsive));
    BOOST_TEST(w.of(r).first.culprit == 2);
  }
  w.kill(2, SIGCONT);
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
}

void check_leave(const rules& forbidden) {
  world w{{.hosts = one_host(static_cast<int>(forbidden.size()))}};
  w.run([&forbidden](rank_process& me) {
    forbid_calls(forbidden[static_cast<std::size_t>(me.rank())]);
    auto m = me.join();
    me.await_order(1);
    if (me.rank() == 2 && !m.leave(3)) throw std::runtime_error{"leave"};
    if (me.rank() != 2) me.await_order(2);
    if (m.cause()) throw std::runtime_error{"leaving is no failure"};
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  for (const rank_t r : {0, 1}) {
    BOOST_REQUIRE(w.of(r).leavings.reaches(1, 5s));
    BOOST_TEST(w.of(r).left_ticket[2] == 4U);
  }
  BOOST_REQUIRE(w.ended(2).has_value());
  w.order_all(2);
  BOOST_TEST(w.all_ended_well({2}));
}

void check_all(const rules& forbidden, death_signal expected, const char* name) {
  check_death(forbidden, expected, name);
  check_crash(forbidden);
  check_stop(forbidden);
  check_leave(forbidden);
}

rules for_three(std::vector<std::string> calls) { return rules(3, std::move(calls)); }

}  // namespace

BOOST_AUTO_TEST_SUITE(guard_restricted, *boost::unit_test::precondition(chorale::testing::needs_calls{
                                            "futex_waitv", "pidfd_open"}))

BOOST_AUTO_TEST_CASE(nothing_forbidden) {
  check_all(for_three({}), death_signal::robust_futex, "robust futex");
}

BOOST_AUTO_TEST_CASE(without_futex_waitv) {
  check_all(for_three({"futex_waitv"}), death_signal::pidfd, "pidfd (no futex_waitv)");
}

BOOST_AUTO_TEST_CASE(without_robust_lists) {
  check_all(for_three({"set_robust_list"}), death_signal::pidfd, "pidfd (no set_robust_list)");
}

BOOST_AUTO_TEST_CASE(without_futex_waitv_and_pidfd_open) {
  check_all(for_three({"futex_waitv", "pidfd_open"}), death_signal::end_of_file, "end of file");
}

BOOST_AUTO_TEST_CASE(without_anything_the_project_likes) {
  check_all(for_three({"futex_waitv", "set_robust_list", "pidfd_open", "membarrier", "process_vm_readv",
                       "io_uring_setup"}),
            death_signal::end_of_file, "end of file (all refused)");
}

BOOST_AUTO_TEST_CASE(only_the_victim_is_restricted) {
  check_all({{}, {}, {"set_robust_list", "futex_waitv"}}, death_signal::pidfd, "pidfd (victim restricted)");
}

BOOST_AUTO_TEST_CASE(only_one_watcher_is_restricted) {
  check_all({{}, {"futex_waitv", "pidfd_open"}, {}}, death_signal::robust_futex,
            "robust futex (one watcher restricted)");
}

BOOST_AUTO_TEST_SUITE_END()
