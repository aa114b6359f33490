// Several ranks of one communicator in one process, and what the guard costs while nothing happens.
#include "rank_processes.hpp"

#include <boost/test/unit_test.hpp>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

using namespace guard_test;
using chorale::errc;
using chorale::rank_t;
using chorale::revoke_scope;

namespace {

chorale::membership_setup rank_of_two(rank_t self, void* segment) {
  chorale::membership_setup s;
  s.epoch = 1;
  s.nonce = 2;
  s.self = self;
  s.size = 2;
  s.segment = segment;
  s.slot = static_cast<std::uint32_t>(self);
  s.slots = 2;
  chorale::host_mate other;
  other.rank = 1 - self;
  other.slot = 1 - s.slot;
  other.pid = ::getpid();
  s.mates.push_back(std::move(other));
  return s;
}

/// How often the thread of that name was switched to since it started.
std::uint64_t switches_of(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    std::string line;
    std::ifstream{task.path() / "comm"} >> line;
    if (line != name) continue;
    std::ifstream status{task.path() / "status"};
    std::uint64_t sum = 0;
    while (std::getline(status, line))
      if (line.find("ctxt_switches:") != std::string::npos)
        sum += std::stoull(line.substr(line.find('\t') + 1));
    return sum;
  }
  throw std::runtime_error{"no thread " + name};
}

/// Of this thread: what others do on a busy machine does not count.
std::uint64_t cpu_time_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(guard_one_process)

BOOST_AUTO_TEST_CASE(two_ranks_of_one_process_hear_of_each_other) {
  world w{{.hosts = one_host(1)}};
  w.run([](rank_process&) {
    const std::unique_ptr<void, decltype(&std::free)> segment{
        std::aligned_alloc(64, chorale::guard_segment::bytes(2)), &std::free};
    std::memset(segment.get(), 0, chorale::guard_segment::bytes(2));
    static_cast<void>(chorale::guard_segment::initialise(segment.get(), 2, 1, 2));
    const auto reports = std::make_unique<std::array<report, 2>>();
    sink first{(*reports)[0]};
    sink second{(*reports)[1]};
    const auto guard = chorale::guard::process();
    auto require = [](bool holds, const char* what) {
      if (!holds) throw std::runtime_error{what};
    };
    auto a = guard->join(rank_of_two(0, segment.get()), first);
    require(a.has_value(), "join");
    {
      auto b = guard->join(rank_of_two(1, segment.get()), second);
      require(b.has_value(), "join");
      require(a->signal_for(1) == chorale::death_signal::own_process, "signal");
      require(b->revoke(revoke_scope::lane, 3, errc::timed_out, 0, 1).has_value(), "lane");
      require((*reports)[0].lane_causes.reaches(1, 5s), "the lane was not heard of");
      require(b->leave(8).has_value(), "leave");
      require((*reports)[0].leavings.reaches(1, 5s), "the leaving was not heard of");
    }
    require(a->revoke(revoke_scope::all, 0, errc::gpu_error, 0, 2).has_value(), "revoke");
    require((*reports)[0].causes.reaches(1, 5s), "the own revoke was not heard of");
  });
  BOOST_TEST(w.all_ended_well());
}

BOOST_AUTO_TEST_CASE(an_idle_guard_sleeps) {
  world w{{.hosts = {0, 0, 1}}};
  w.run([](rank_process& me) {
    const auto m = me.join();
    me.await_order(1);
    me.mine().numbers[0] = switches_of("chorale-watch") + switches_of("chorale-control");
    me.await_order(2);
    me.mine().numbers[1] = switches_of("chorale-watch") + switches_of("chorale-control");
    me.mine().phase.set(1);
    me.await_order(3);
  });
  BOOST_REQUIRE(w.all_joined());
  BOOST_TEST(!w.of(0).causes.reaches(1, 200ms));  // lets the last registrations settle
  w.order_all(1);
  BOOST_TEST(!w.of(0).causes.reaches(1, 500ms));
  w.order_all(2);
  for (rank_t r = 0; r < 3; ++r) {
    BOOST_REQUIRE(w.of(r).phase.reaches(1, 5s));
    BOOST_TEST(w.of(r).numbers[0] == w.of(r).numbers[1]);
  }
  w.order_all(3);
  BOOST_TEST(w.all_ended_well());
}

BOOST_AUTO_TEST_CASE(pending_and_done_cost_no_system_call) {
  world w{{.hosts = {0, 0}}};
  w.run([](rank_process& me) {
    auto m = me.join();
    const std::array<rank_t, 2> ranks{0, 1};
    const int rounds = 200000;
    const auto since = clock::now();
    const auto used = cpu_time_ns();
    for (int i = 0; i < rounds; ++i) m.done(m.pending(1, static_cast<std::uint64_t>(i), ranks, since));
    me.mine().numbers[0] = (cpu_time_ns() - used) / rounds;
    me.await_order(1);
  });
  BOOST_REQUIRE(w.all_joined());
  w.order_all(1);
  BOOST_TEST(w.all_ended_well());
  std::cout << "pending + done: " << w.of(0).numbers[0] << " ns\n";
  if (!under_thread_sanitizer) BOOST_TEST(w.of(0).numbers[0] < 2000U);  // a wake alone takes longer
}

BOOST_AUTO_TEST_SUITE_END()
