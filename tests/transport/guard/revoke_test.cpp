// Revokes by the ranks themselves: everything, or one lane, on one host and across hosts.
#include "rank_processes.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <set>

using namespace guard_test;
using chorale::errc;
using chorale::rank_t;
using chorale::revoke_scope;

namespace {

void check_everybody_hears_the_first_cause(world_options options) {
  world w{std::move(options)};
  w.run([](rank_process& me) {
    auto m = me.join();
    me.await_order(1);
    if (me.rank() == 1) {
      if (!m.revoke(revoke_scope::all, 4, errc::protocol_error, 0, 12)) throw std::runtime_error{"revoke"};
      if (!m.revoke(revoke_scope::all, 4, errc::gpu_error, 1, 13)) throw std::runtime_error{"second revoke"};
      if (m.cause()->cause != errc::protocol_error) throw std::runtime_error{"the second cause won"};
    }
    me.await_order(2);
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  for (rank_t r = 0; r < w.size(); ++r) {
    BOOST_TEST_CONTEXT("rank " << r) {
      BOOST_REQUIRE(w.of(r).causes.reaches(1, 5s));
      BOOST_TEST(w.of(r).first.cause == static_cast<std::int32_t>(errc::protocol_error));
      BOOST_TEST(w.of(r).first.culprit == 0);
      BOOST_TEST(w.of(r).first.origin == 1);
      BOOST_TEST(w.of(r).first.ticket == 12U);
      BOOST_TEST(w.of(r).first.lane == 4U);
    }
  }
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
  for (rank_t r = 0; r < w.size(); ++r) BOOST_TEST(w.of(r).causes.get() == 1U);
}

/// Every rank revokes `each` lanes of its own; everybody must hear of all of them once, in order per origin.
void check_lanes(world_options options, std::uint64_t each) {
  world w{std::move(options)};
  w.run([each](rank_process& me) {
    auto m = me.join();
    me.await_order(1);
    for (std::uint64_t i = 0; i < each; ++i)
      if (!m.revoke(revoke_scope::lane, static_cast<std::uint64_t>(me.rank()) * 1000 + i, errc::timed_out,
                    chorale::no_rank, i))
        throw std::runtime_error{"revoke"};
    me.await_order(2);
    if (m.cause()) throw std::runtime_error{"a lane ended the membership"};
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  const auto total = static_cast<std::uint32_t>(each) * static_cast<std::uint32_t>(w.size());
  for (rank_t r = 0; r < w.size(); ++r) {
    BOOST_TEST_CONTEXT("rank " << r) {
      BOOST_REQUIRE(w.of(r).lane_causes.reaches(total, 10s));
      std::vector<std::uint64_t> next(static_cast<std::size_t>(w.size()));
      bool in_order = true;
      for (std::uint32_t i = 0; i < total; ++i) {
        const auto lane = w.of(r).lanes[i].lane.load();
        in_order = in_order && lane % 1000 == next[lane / 1000]++;
      }
      BOOST_TEST(in_order);
    }
  }
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
  for (rank_t r = 0; r < w.size(); ++r) {
    BOOST_TEST(w.of(r).lane_causes.get() == total);
    BOOST_TEST(w.of(r).causes.get() == 0U);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(guard_revoke)

BOOST_AUTO_TEST_CASE(on_one_host) { check_everybody_hears_the_first_cause({.hosts = one_host(4)}); }
BOOST_AUTO_TEST_CASE(across_three_hosts) {
  check_everybody_hears_the_first_cause({.hosts = {0, 0, 1, 1, 2, 2}});
}
BOOST_AUTO_TEST_CASE(across_hosts_over_tcp) {
  check_everybody_hears_the_first_cause({.hosts = {0, 1, 1, 2}, .links = link_type::tcp});
}
BOOST_AUTO_TEST_CASE(alone) {
  world w{{.hosts = one_host(1)}};
  w.run([](rank_process& me) {
    auto m = me.join();
    if (!m.revoke(revoke_scope::all, 0, errc::gpu_error, 0, 3)) throw std::runtime_error{"revoke"};
    me.await_order(1);
  });
  BOOST_TEST(w.of(0).causes.reaches(1, 5s));
  w.order_all(1);
  BOOST_TEST(w.all_ended_well());
}

BOOST_AUTO_TEST_CASE(more_lanes_than_a_mailbox_holds_on_one_host) {
  check_lanes({.hosts = one_host(4)}, 100);
}
BOOST_AUTO_TEST_CASE(more_lanes_than_a_mailbox_holds_across_hosts) {
  check_lanes({.hosts = {0, 0, 1, 2, 2}, .links = link_type::tcp}, 80);
}

BOOST_AUTO_TEST_CASE(a_ring_of_hosts_hears_of_a_local_revoke_only_once) {
  check_everybody_hears_the_first_cause({.hosts = {0, 1, 2, 3, 4, 5, 6, 7}});
}

BOOST_AUTO_TEST_CASE(nonsense_is_refused) {
  world w{{.hosts = one_host(1)}};
  w.run([](rank_process& me) {
    auto m = me.join();
    const bool refused = !m.revoke(revoke_scope::all, 0, errc::ok, 0, 3) &&
                         !m.revoke(revoke_scope::all, 0, errc::gpu_error, 1, 3) && !m.cause();
    if (!refused) throw std::runtime_error{"not refused"};
  });
  BOOST_TEST(w.all_ended_well());
}

BOOST_AUTO_TEST_SUITE_END()
