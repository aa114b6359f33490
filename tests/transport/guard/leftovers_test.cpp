// A guard that has gone leaves no descriptor, thread or handler behind; one with many words manages.
#include "needs_calls.hpp"
#include "rank_processes.hpp"

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <filesystem>
#include <iterator>
#include <thread>

using namespace guard_test;
using chorale::errc;
using chorale::rank_t;

namespace {

std::uint64_t count_in(const char* directory) {
  const std::filesystem::directory_iterator all{directory};
  return static_cast<std::uint64_t>(std::distance(begin(all), end(all)));
}

/// A sanitizer starts threads of its own beside the first one of the program.
std::uint64_t threads_at_rest() {
  std::thread{[] {}}.join();
  return count_in("/proc/self/task");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(guard_leftovers)

BOOST_AUTO_TEST_CASE(descriptors_threads_and_handlers_are_as_before) {
  constexpr std::size_t communicators = 3;
  world w{{.hosts = {0, 0, 1, 1}, .links = link_type::tcp}, communicators};
  w.run([](rank_process& me) {
    auto& n = me.mine().numbers;
    struct sigaction before{};
    ::sigaction(SIGSEGV, nullptr, &before);
    n[0] = count_in("/proc/self/fd");
    n[1] = threads_at_rest();
    {
      std::vector<chorale::membership> all;
      for (std::size_t c = 0; c < communicators; ++c) all.push_back(me.join(c));
      me.await_order(1);
      n[2] = count_in("/proc/self/task");
    }
    n[3] = count_in("/proc/self/fd");
    n[4] = count_in("/proc/self/task");
    struct sigaction after{};
    ::sigaction(SIGSEGV, nullptr, &after);
    n[5] = before.sa_handler == after.sa_handler ? 1 : 0;
    me.mine().phase.set(1);
    me.await_order(2);
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  for (rank_t r = 0; r < w.size(); ++r) {
    BOOST_TEST_CONTEXT("rank " << r) {
      BOOST_REQUIRE(w.of(r).phase.reaches(1, 10s));
      const auto& n = w.of(r).numbers;
      // The links, end-of-file sockets and eventfds that the bootstrap handed over are closed too. Per
      // communicator: one end-of-file socket to the mate and the links that this rank had.
      BOOST_TEST(n[3] < n[0]);
      BOOST_TEST(n[4] == n[1]);
      BOOST_TEST(n[2] == n[1] + 2);  // watch and control
      BOOST_TEST(n[5] == 1U);
    }
  }
  w.order_all(2);
  BOOST_TEST(w.all_ended_well());
}

BOOST_AUTO_TEST_CASE(joining_again_and_again_leaks_nothing) {
  world w{{.hosts = one_host(1)}};
  w.run([](rank_process& me) {
    auto& n = me.mine().numbers;
    for (int i = 0; i < 200; ++i) {
      const auto m = me.join();
      if (i == 0) n[0] = count_in("/proc/self/fd");
      if (i == 199) n[1] = count_in("/proc/self/fd");
    }
  });
  BOOST_TEST(w.all_ended_well());
  BOOST_TEST(w.of(0).numbers[0] == w.of(0).numbers[1]);
}

BOOST_AUTO_TEST_CASE(more_words_than_one_futex_waitv_takes,
                     *boost::unit_test::precondition(chorale::testing::needs_calls{"futex_waitv"})) {
  // 60 communicators of 4 ranks: 240 words to wait for, on two threads.
  constexpr std::size_t communicators = 60;
  world w{{.hosts = one_host(4), .pidfd_and_eof = false}, communicators};
  w.run([](rank_process& me) {
    const auto at_rest = threads_at_rest();
    {
      std::vector<chorale::membership> all;
      for (std::size_t c = 0; c < communicators; ++c) all.push_back(me.join(c));
      me.mine().numbers[0] = count_in("/proc/self/task") - at_rest;
      me.await_order(1);
    }
    me.mine().numbers[1] = count_in("/proc/self/task") - at_rest;
  });
  BOOST_REQUIRE(w.all_joined(30s));
  const auto before = now_ns();
  w.kill(3, SIGKILL);
  for (const rank_t r : {0, 1, 2}) {
    BOOST_REQUIRE(w.of(r).causes.reaches(communicators, 10s));
    BOOST_TEST(w.of(r).first.culprit == 3);
    BOOST_TEST(w.of(r).first.at - before < 100'000'000);
  }
  w.order_all(1);
  BOOST_TEST(w.all_ended_well({3}));
  for (const rank_t r : {0, 1, 2}) {
    BOOST_TEST(w.of(r).numbers[0] == 2U);
    BOOST_TEST(w.of(r).numbers[1] == 0U);
    BOOST_TEST(w.of(r).causes.get() == communicators);
  }
}

BOOST_AUTO_TEST_CASE(setups_that_do_not_fit_are_refused) {
  world w{{.hosts = one_host(1)}};
  w.run([](rank_process& me) {
    sink s{me.mine()};
    const auto at_rest = threads_at_rest();
    const auto guard = chorale::guard::process();
    auto refused_with = [&](errc code, auto change) {
      chorale::membership_setup setup;
      setup.size = 4;
      change(setup);
      const auto m = guard->join(std::move(setup), s);
      if (m || m.error() != code)
        throw std::runtime_error{"accepted: " + std::string{chorale::name_of(code)}};
    };
    refused_with(errc::invalid_argument, [](auto& x) { x.self = 4; });
    refused_with(errc::invalid_argument, [](auto& x) { x.slot = 1; });
    refused_with(errc::invalid_argument, [](auto& x) { x.slots = 2; });
    refused_with(errc::invalid_argument, [](auto& x) { x.processes = {1, 2}; });
    refused_with(errc::invalid_argument, [](auto& x) { x.links.push_back({1, {}}); });
    refused_with(errc::invalid_argument, [](auto& x) { x.mates.emplace_back().rank = 1; });
    alignas(64) static std::array<std::byte, 8192> memory{};
    refused_with(errc::protocol_error, [](auto& x) { x.segment = memory.data(); });
    static_cast<void>(chorale::guard_segment::initialise(memory.data(), 1, 5, 6));
    refused_with(errc::protocol_error, [](auto& x) { x.segment = memory.data(); });
    if (count_in("/proc/self/task") != at_rest) throw std::runtime_error{"a refused setup started threads"};
  });
  BOOST_TEST(w.all_ended_well());
}

BOOST_AUTO_TEST_SUITE_END()
