// Control links between hosts: what travels over them, and how they break.
#include "rank_processes.hpp"

#include <boost/test/unit_test.hpp>
#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <iostream>

using namespace guard_test;
using chorale::errc;
using chorale::rank_t;

namespace {

void stay(rank_process& me) {
  const auto m = me.join();
  me.await_order(1);
  me.mine().numbers[0] = m.counters().foreign_frames;
  me.mine().numbers[1] = static_cast<std::uint64_t>(m.state_of(0));
  me.mine().phase.set(1);
  me.await_order(2);
}

void check_death_crosses(link_type type, std::vector<int> hosts, rank_t victim) {
  std::vector<double> slowest;
  for (int round = 0; round < 9; ++round) {
    world w{{.hosts = hosts, .links = type}};
    w.run(stay);
    BOOST_REQUIRE(w.all_joined());
    const auto before = now_ns();
    w.kill(victim, SIGKILL);
    std::int64_t last = 0;
    for (rank_t r = 0; r < w.size(); ++r) {
      if (r == victim) continue;
      BOOST_TEST_CONTEXT("rank " << r) {
        BOOST_REQUIRE(w.of(r).causes.reaches(1, 5s));
        BOOST_TEST(w.of(r).first.cause == static_cast<std::int32_t>(errc::peer_lost));
        BOOST_TEST(w.of(r).first.culprit == victim);
        last = std::max(last, w.of(r).first.at.load());
      }
    }
    slowest.push_back(static_cast<double>(last - before) / 1e6);
    w.order_all(1);
    w.order_all(2);
    BOOST_TEST(w.all_ended_well({victim}));
  }
  std::sort(slowest.begin(), slowest.end());
  std::cout << "kill -9, last of " << hosts.size() - 1
            << " ranks on other hosts and the same told after: median " << slowest[slowest.size() / 2]
            << " ms, most " << slowest.back() << " ms\n";
  BOOST_TEST(slowest[slowest.size() / 2] < 100.0);
}

/// From here on nothing arrives at this socket, not even an acknowledgement: a cut cable.
void cut(int socket) {
  sock_filter drop_all[] = {{BPF_RET | BPF_K, 0, 0, 0}};
  const sock_fprog program{1, drop_all};
  if (::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0)
    throw std::runtime_error{"SO_ATTACH_FILTER"};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(guard_links)

BOOST_AUTO_TEST_CASE(a_death_reaches_the_other_host_over_unix_sockets) {
  check_death_crosses(link_type::unix_pair, {0, 0, 1, 1}, 1);
}
BOOST_AUTO_TEST_CASE(a_death_reaches_the_other_host_over_tcp) {
  check_death_crosses(link_type::tcp, {0, 0, 0, 1, 1, 1}, 2);
}
BOOST_AUTO_TEST_CASE(a_rank_alone_on_its_host_is_missed_by_its_links) {
  check_death_crosses(link_type::tcp, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 5);
}

BOOST_AUTO_TEST_CASE(a_crash_alone_on_its_host_still_says_its_signal) {
  world w{{.hosts = {0, 1, 2}, .links = link_type::tcp}};
  w.run([](rank_process& me) {
    const auto m = me.join();
    me.await_order(1);
    if (me.rank() == 1) ::raise(SIGSEGV);
    me.await_order(2);
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  for (const rank_t r : {0, 2}) {
    BOOST_REQUIRE(w.of(r).causes.reaches(1, 5s));
    BOOST_TEST(w.of(r).first.culprit == 1);
    BOOST_TEST(w.of(r).first.detail == SIGSEGV);
  }
  w.order_all(2);
  BOOST_TEST(w.all_ended_well({1}));
}

BOOST_AUTO_TEST_CASE(a_cut_cable_is_a_lost_link) {
  chorale::guard_options patience;
  patience.link_timeout = 1s;
  world w{{.hosts = {0, 1}, .links = link_type::tcp, .guard = patience}};
  w.run([](rank_process& me) {
    const int socket = me.link_to(1 - me.rank());
    const auto m = me.join();
    me.await_order(1);
    if (me.rank() == 0) cut(socket);
    me.await_order(2);
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  BOOST_REQUIRE(w.of(0).causes.reaches(1, 20s));
  BOOST_TEST(w.of(0).first.cause == static_cast<std::int32_t>(errc::link_lost));
  BOOST_TEST(w.of(0).first.culprit == 1);
  BOOST_TEST(w.of(0).first.detail == ETIMEDOUT);
  w.order_all(2);
  static_cast<void>(w.all_ended_well());
}

BOOST_AUTO_TEST_CASE(leaving_crosses_hosts_and_its_closed_links_are_no_failure) {
  world w{{.hosts = {0, 0, 1, 1, 2}, .links = link_type::tcp}};
  w.run([](rank_process& me) {
    {
      auto m = me.join();
      me.await_order(1);
      if (me.rank() == 0) {
        if (!m.leave(5)) throw std::runtime_error{"leave"};
      } else {
        me.await_order(2);
        if (m.cause()) throw std::runtime_error{"leaving was taken for a failure"};
      }
    }
    me.await_order(3);
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  for (const rank_t r : {1, 2, 3, 4}) {
    BOOST_REQUIRE(w.of(r).leavings.reaches(1, 5s));
    BOOST_TEST(w.of(r).left_ticket[0] == 6U);
  }
  w.order_all(2);
  w.order_all(3);
  BOOST_TEST(w.all_ended_well());
  for (const rank_t r : {1, 2, 3, 4}) BOOST_TEST(w.of(r).causes.get() == 0U);
}

BOOST_AUTO_TEST_CASE(frames_of_another_epoch_are_dropped_and_counted) {
  chorale::guarding::frame f;
  f.kind = chorale::guarding::frame_kind::revoke;
  f.cause = errc::gpu_error;
  f.origin = 1;
  f.culprit = 1;
  f.epoch = 1;
  f.nonce = 4711;
  world w{{.hosts = {0, 1}}};
  w.run([f](rank_process& me) {
    if (me.rank() == 1) {
      // Before the guard owns the socket: an old incarnation's last words.
      const auto bytes = chorale::guarding::encode(f);
      if (::send(me.link_to(0), bytes.data(), bytes.size(), 0) != 64) throw std::runtime_error{"send"};
    }
    auto m = me.join();
    if (me.rank() == 1 && !m.revoke(chorale::revoke_scope::lane, 3, errc::timed_out, 1, 1))
      throw std::runtime_error{"revoke"};
    me.await_order(1);
    me.mine().numbers[0] = m.counters().foreign_frames;
    me.await_order(2);
  });
  BOOST_REQUIRE(w.of(0).lane_causes.reaches(1, 5s));  // came behind the foreign frame
  w.order_all(1);
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
  BOOST_TEST(w.of(0).causes.get() == 0U);
  BOOST_TEST(w.of(0).numbers[0] == 1U);
}

BOOST_AUTO_TEST_CASE(nonsense_on_a_link_is_a_protocol_error_of_its_sender) {
  world w{{.hosts = {0, 1, 2}}};
  w.run([](rank_process& me) {
    if (me.rank() == 1) {
      const std::array<char, 64> nonsense{"GET / HTTP/1.0"};
      if (::send(me.link_to(0), nonsense.data(), nonsense.size(), 0) != 64) throw std::runtime_error{"send"};
    }
    const auto m = me.join();
    me.await_order(1);
  });
  for (const rank_t r : {0, 1, 2}) {
    BOOST_REQUIRE(w.of(r).causes.reaches(1, 5s));
    BOOST_TEST(w.of(r).first.cause == static_cast<std::int32_t>(errc::protocol_error));
    BOOST_TEST(w.of(r).first.culprit == 1);
  }
  w.order_all(1);
  BOOST_TEST(w.all_ended_well());
}

BOOST_AUTO_TEST_SUITE_END()
