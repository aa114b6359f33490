// Leaving in good order, and fork children, which own nothing.
#include "needs_calls.hpp"
#include "rank_processes.hpp"

#include <boost/test/unit_test.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

using namespace guard_test;
using chorale::errc;
using chorale::rank_t;

BOOST_AUTO_TEST_SUITE(guard_leaving)

BOOST_AUTO_TEST_CASE(leaving_is_announced_with_the_last_ticket_and_is_no_failure) {
  world w{{.hosts = one_host(4)}};
  w.run([](rank_process& me) {
    auto m = me.join();
    me.await_order(1);
    if (me.rank() == 3) {
      if (!m.leave(41) || !m.leave(99)) throw std::runtime_error{"leave"};
      return;  // and ends: that is no death any more
    }
    me.await_order(2);
    if (m.cause()) throw std::runtime_error{"leaving revoked the communicator"};
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  BOOST_TEST(w.ended(3).value_or(-1) == 0);
  for (const rank_t r : {0, 1, 2}) {
    BOOST_REQUIRE(w.of(r).leavings.reaches(1, 5s));
    BOOST_TEST(w.of(r).left_ticket[3] == 42U);
  }
  // The others still watch each other.
  w.kill(0, SIGKILL);
  for (const rank_t r : {1, 2}) {
    BOOST_REQUIRE(w.of(r).causes.reaches(1, 5s));
    BOOST_TEST(w.of(r).first.culprit == 0);
  }
}

BOOST_AUTO_TEST_CASE(the_destructor_leaves_with_the_last_started_ticket) {
  world w{{.hosts = one_host(2)}};
  w.run([](rank_process& me) {
    {
      auto m = me.join();
      m.started(7);
      me.await_order(1);
      if (me.rank() == 1) me.await_order(2);
    }
    me.await_order(2);
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  BOOST_REQUIRE(w.of(1).leavings.reaches(1, 5s));
  BOOST_TEST(w.of(1).left_ticket[0] == 8U);
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
  BOOST_TEST(w.of(1).causes.get() == 0U);
}

BOOST_AUTO_TEST_CASE(a_fork_child_owns_nothing_and_is_not_taken_for_its_parent) {
  world w{{.hosts = one_host(3)}};
  w.run([](rank_process& me) {
    auto m = me.join();
    me.await_order(1);
    if (me.rank() != 1) return me.await_order(2);
    // A child that exits, one that crashes, and one that lives on while its parent is killed.
    const pid_t exits = ::fork();
    if (exits == 0) {
      const bool refused = !m.leave(1) && m.leave(1).error() == errc::forked &&
                           !m.revoke(chorale::revoke_scope::all, 0, errc::protocol_error, 0, 1) &&
                           chorale::forked();
      m.started(1000);
      ::_exit(refused ? 0 : 1);
    }
    int status = 0;
    ::waitpid(exits, &status, 0);
    me.mine().numbers[0] = static_cast<std::uint64_t>(status);
    const pid_t crashes = ::fork();
    if (crashes == 0) ::raise(SIGSEGV);
    ::waitpid(crashes, &status, 0);
    me.mine().numbers[1] = static_cast<std::uint64_t>(status);
    me.mine().phase.set(1);
    me.await_order(2);
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  BOOST_REQUIRE(w.of(1).phase.reaches(1, 10s));
  BOOST_TEST(w.of(1).numbers[0] == 0U);
  BOOST_TEST(WTERMSIG(static_cast<int>(w.of(1).numbers[1].load())) == SIGSEGV);
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
  for (rank_t r = 0; r < 3; ++r) BOOST_TEST(w.of(r).causes.get() == 0U);
}

// The child keeps the sockets whose end would tell; only these two calls tell a process from them.
BOOST_AUTO_TEST_CASE(a_parent_dies_although_its_fork_child_lives,
                     *boost::unit_test::precondition(chorale::testing::needs_calls{"futex_waitv",
                                                                                   "pidfd_open"})) {
  world w{{.hosts = one_host(3)}};
  w.run([](rank_process& me) {
    auto m = me.join();
    me.await_order(1);
    if (me.rank() == 1) {
      const pid_t child = ::fork();
      if (child == 0) {
        me.await_order(3);
        ::_exit(0);
      }
      me.mine().phase.set(1);
    }
    me.await_order(2);
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  BOOST_REQUIRE(w.of(1).phase.reaches(1, 5s));
  w.kill(1, SIGKILL);
  for (const rank_t r : {0, 2}) {
    BOOST_REQUIRE(w.of(r).causes.reaches(1, 5s));
    BOOST_TEST(w.of(r).first.culprit == 1);
  }
  w.order_all(3);
  BOOST_TEST(w.all_ended_well({1}));
}

BOOST_AUTO_TEST_CASE(a_fork_child_may_enter_communicators_of_its_own) {
  if (under_thread_sanitizer) return;  // it allows no threads after a fork of a process that had some
  world w{{.hosts = one_host(2)}, 2};
  w.run([](rank_process& me) {
    auto m = me.join(0);
    const pid_t child = ::fork();
    if (child == 0) {
      int status = 1;
      try {
        auto own = me.join(1);
        me.await_order(1);
        status = chorale::guard::process() != nullptr ? 0 : 2;
      } catch (const std::exception&) {
        status = 3;
      }
      ::_exit(status);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) throw std::runtime_error{"the child ended with " + std::to_string(status)};
    me.await_order(2);
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
}

BOOST_AUTO_TEST_SUITE_END()
