// Two communicators and twenty lanes of each, used from four threads, in an order that every thread of every
// rank draws for itself: sums and rings of messages four times as long as a pair's ring, and small ones.
//
// CHORALE_LANES_SECONDS=60 plays for a minute.
#include "asio_under_test.hpp"
#include "job.hpp"

#include <boost/test/unit_test.hpp>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <future>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

using namespace chorale;
using namespace chorale::testing;

namespace {

constexpr std::uint64_t lanes = 20;
constexpr unsigned threads = 4;
#ifdef CHORALE_SANITIZED
constexpr std::size_t long_count = std::size_t{1} << 16;
#else
constexpr std::size_t long_count = std::size_t{1} << 20;  // 4 MiB; a pair's ring has 1 MiB
#endif

using numbers = std::vector<std::int32_t>;

int seconds_to_play() {
  const char* text = std::getenv("CHORALE_LANES_SECONDS");
  return text ? std::atoi(text) : 3;
}

/// One lane of one communicator in one round: three calls, which every rank makes in this order.
struct lane_round {
  static constexpr int calls = 3;
  hosted_lane on;
  rank_t me;
  rank_t n;
  std::int32_t salt = 0;
  int next = 0;
  numbers summed{}, sent{}, came{}, few{};
  received told{};

  void prepare(std::int32_t value) {
    salt = value;
    next = 0;
    summed.assign(long_count, me + salt);
    sent.assign(long_count, me * 1000 + salt);
    came.assign(long_count, -1);
    few.assign(3, me + salt);
    told = {};
  }
  std::future<void> call() {
    switch (next++) {
      case 0:
        return on.all_reduce(summed, sum, asio::use_future);
      case 1:
        return on.sendrecv(sent, (me + 1) % n, came, any_source, salt % 7, &told, asio::use_future);
      default:
        return on.all_reduce(few, max, asio::use_future);
    }
  }
  void check() const {
    const rank_t previous = (me + n - 1) % n;
    const std::int32_t all = n * salt + n * (n - 1) / 2;
    expect(summed.front() == all && summed.back() == all, "a long sum");
    expect(told.source == previous && told.count == long_count, "who sent");
    expect(came.front() == previous * 1000 + salt && came.back() == came.front(), "a long message");
    expect(few.back() == n - 1 + salt, "a small maximum");
  }
};

/// Whether there is another round: rank 0's clock says, for all.
bool go_on(hosted_lane& control, std::chrono::steady_clock::time_point until, rank_t me) {
  std::array<std::int32_t, 1> more{me == 0 && std::chrono::steady_clock::now() < until ? 1 : 0};
  control.all_reduce(more, max, asio::use_future).get();
  return more[0] != 0;
}

int play(std::array<hosted_communicator*, 2> comms, unsigned thread, unsigned seed,
         std::chrono::steady_clock::time_point until) {
  const rank_t me = (*comms[0])->rank();
  const rank_t n = (*comms[0])->size();
  hosted_lane control = comms[0]->lane(500 + thread);
  std::vector<lane_round> work;
  for (std::uint64_t l = thread; l < lanes; l += threads)
    for (hosted_communicator* comm : comms) work.push_back({comm->lane(1000 + l), me, n});
  std::mt19937 dice{seed * 16 + static_cast<unsigned>(me) * threads + thread};
  int rounds = 0;
  while (go_on(control, until, me)) {
    ++rounds;
    for (std::size_t i = 0; i < work.size(); ++i)
      work[i].prepare(static_cast<std::int32_t>(i) + 100 * (rounds % 1000));
    std::vector<std::future<void>> running;
    std::vector<lane_round*> open;
    for (lane_round& w : work) open.push_back(&w);
    while (!open.empty()) {
      const std::size_t i = dice() % open.size();
      running.push_back(open[i]->call());
      if (open[i]->next == lane_round::calls) open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (std::future<void>& f : running) f.get();
    for (const lane_round& w : work) w.check();
  }
  return rounds;
}

void play_on_four_threads(unsigned seed) {
  const int limit = seconds_to_play();
  ::alarm(static_cast<unsigned>(limit) + 60);
  hosted_communicator one;
  const std::string other_root = std::string{std::getenv("CHORALE_ROOT")} + "-second";
  ::setenv("CHORALE_ROOT", other_root.c_str(), 1);
  hosted_communicator two;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{limit};
  std::array<std::future<int>, threads> playing;
  for (unsigned t = 0; t < threads; ++t)
    playing[t] = std::async(std::launch::async, [&, t] { return play({&one, &two}, t, seed, until); });
  for (std::future<int>& p : playing) {
    const int rounds = p.get();
    expect(rounds > 0, "a round");
    if (one->rank() == 0) std::cout << rounds << " rounds" << std::endl;
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(lanes_and_threads)

BOOST_AUTO_TEST_CASE(two_communicators_twenty_lanes_four_threads) {
  const unsigned seed = std::random_device{}() % 100'000;
  std::cout << "lanes and threads: seed " << seed << std::endl;
  for (const char* transport : {"auto", "tcp"}) {
    const std::string wrong =
        run_ranks({.ranks = 3, .transport = transport}, [seed] { play_on_four_threads(seed); });
    BOOST_TEST(wrong.empty(), transport << ": " << wrong);
  }
}

BOOST_AUTO_TEST_SUITE_END()
