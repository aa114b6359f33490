// Communicators in plain code: every call waits for its end, on as many threads as there are, and says why it
// could not be.
#include "every_call.hpp"
#include <chorale/blocking.hpp>

#include <boost/test/unit_test.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <thread>

using namespace chorale;
using namespace chorale::testing;
using namespace std::chrono_literals;

namespace {

const auto by_waiting = [](auto call) { call(); };
const auto by_result = [](auto call) { expect(call(std::nothrow).has_value(), "a result without an error"); };

void use_everything() {
  blocking_communicator comm;
  const blocking_lane lane = comm.lane(5);
  make_every_call(comm, comm.rank(), comm.size(), by_waiting);
  make_every_call(comm, comm.rank(), comm.size(), by_result);
  blocking_lane other = comm.lane(6);
  make_every_call(other, comm.rank(), comm.size(), by_waiting);

  std::vector<float> sums(3, 1.0f);
  const blocking_plan plan = comm.plan(all_reduce(sums));
  for (int i = 0; i < 5; ++i) plan.run();
  expect(plan.run(deadline{20s}, std::nothrow).has_value(), "a planned call's result");
  const auto n = static_cast<float>(comm.size());
  expect(sums.front() == n * n * n * n * n * n, "planned calls");
  const blocking_plan on_lane = lane.plan(barrier());
  on_lane.run(std::nothrow).value();
  on_lane.run(deadline{20s});
  expect(!comm.cause(), "nothing ended the epoch");
}

BOOST_AUTO_TEST_SUITE(blocking_calls)

BOOST_AUTO_TEST_CASE(every_call) { BOOST_TEST(run_ranks({.ranks = 3}, use_everything) == ""); }

BOOST_AUTO_TEST_CASE(every_call_over_tcp) {
  BOOST_TEST(run_ranks({.ranks = 2, .transport = "tcp"}, use_everything) == "");
}

void have_children() {
  blocking_communicator comm;
  const rank_t parity = comm.rank() % 2;
  {
    std::optional<blocking_communicator> half = comm.split(parity, -comm.rank());
    expect(half.has_value() && half->size() == (parity == 0 ? 2 : 1), "half of the ranks");
    make_every_call(*half, half->rank(), half->size(), by_waiting);
    blocking_communicator again = half->dup(deadline{20s});
    again.barrier();
  }
  expect(!comm.split(comm.rank() == 0 ? no_colour : 0).has_value() == (comm.rank() == 0), "no colour");
  comm.barrier();
}

BOOST_AUTO_TEST_CASE(children_of_a_communicator) { BOOST_TEST(run_ranks({.ranks = 3}, have_children) == ""); }

void be_late() {
  blocking_communicator comm;
  std::vector<float> part(100'000, 1.0f);
  if (comm.rank() == 0) {
    blocking_lane lane = comm.lane(1);
    const result<> late = lane.all_reduce(part, sum, deadline{2ms}, std::nothrow);
    expect(!late && late.error() == errc::timed_out, "the result of a call that was too late");
    bool thrown = false;
    try {
      comm.lane(2).all_reduce(part, sum, deadline{2ms});
    } catch (const failure& f) {
      thrown = f.why() == errc::timed_out;
    }
    expect(thrown, "the failure of a call that was too late");
    const result<> wrong = comm.broadcast(part, 17, std::nothrow);
    expect(!wrong && wrong.error() == errc::invalid_argument, "a root that is none");
  }
  comm.barrier();
}

BOOST_AUTO_TEST_CASE(deadlines_and_errors) { BOOST_TEST(run_ranks({.ranks = 2}, be_late) == ""); }

task<void> block_inside(blocking_communicator& comm) {
  std::vector<float> part(2, 1.0f);
  const result<> refused = comm.all_reduce(part, sum, std::nothrow);
  expect(!refused && refused.error() == errc::invalid_state, "refused inside a coroutine");
  expect(refused.error().message().find("another thread") != std::string::npos, refused.error().message());
  bool thrown = false;
  try {
    comm.barrier();
  } catch (const failure& f) {
    thrown = f.why() == errc::invalid_state;
  }
  expect(thrown, "refused inside a coroutine, by an exception");
  thrown = false;
  try {
    const blocking_communicator another;
  } catch (const failure& f) {
    thrown = f.why() == errc::invalid_state;
  }
  expect(thrown, "refused to join inside a coroutine");
  co_return;
}

void block_in_coroutines() {
  blocking_communicator comm;
  comm.hosted().thread().run(block_inside(comm));  // its own engine
  engine other;
  other.run(block_inside(comm));
  comm.barrier();  // the lane is as it was
}

BOOST_AUTO_TEST_CASE(refused_inside_coroutines_of_engines) {
  BOOST_TEST(run_ranks({.ranks = 2}, block_in_coroutines) == "");
}

void die_and_go_on() {
  blocking_communicator comm;
  if (comm.launched_as() == 1) ::raise(SIGKILL);
  std::vector<float> part(10, 1.0f);
  result<> last;
  while (last) last = comm.all_reduce(part, sum, std::nothrow);
  expect(last.error() == errc::peer_lost || last.error() == errc::revoked, last.error().message());
  expect(comm.cause() == errc::peer_lost && comm.cause().culprit() == 1, comm.cause().message());
  comm.reset();
  expect(comm.size() == 2 && comm.epoch_number() == 2, "the others go on");
  make_every_call(comm, comm.rank(), comm.size(), by_waiting);
}

BOOST_AUTO_TEST_CASE(a_rank_dies_and_the_others_go_on) {
  BOOST_TEST(run_ranks({.ranks = 3, .killed = 1}, die_and_go_on) == "");
}

void fork_and_call() {
  blocking_communicator comm;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    bool right = false;
    {
      blocking_communicator inherited = std::move(comm);
      const result<> refused = inherited.barrier(std::nothrow);
      const blocking_lane lane = inherited.lane(9);
      right = !refused && refused.error() == errc::forked;
    }
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a fork child is refused and can go");
  comm.barrier();
}

BOOST_AUTO_TEST_CASE(a_fork_child_owns_nothing) { BOOST_TEST(run_ranks({.ranks = 2}, fork_and_call) == ""); }

constexpr std::uint64_t lanes = 20;
constexpr int rounds = 10;

/// Lanes of its own, in an order that differs from rank to rank; lengths that only fit the right round.
void work(const blocking_communicator& comm, std::uint64_t thread, unsigned seed) {
  std::mt19937 random{seed};
  std::vector<blocking_lane> mine;
  for (std::uint64_t key = thread; key < lanes; key += 4) mine.push_back(comm.lane(100 + key));
  std::vector<int> next(mine.size());
  for (;;) {
    std::vector<std::size_t> open;
    for (std::size_t l = 0; l < mine.size(); ++l)
      if (next[l] < rounds) open.push_back(l);
    if (open.empty()) return;
    // One call at a time: the order among this thread's lanes must be everybody's.
    const std::size_t l = open[static_cast<std::size_t>(next[open.front()] * 7) % open.size()];
    std::vector<std::int32_t> part(1 + 10 * thread + static_cast<std::size_t>(next[l]),
                                   comm.rank() + next[l]);
    mine[l].all_reduce(part, sum);
    expect(part.back() == comm.size() * next[l] + comm.size() * (comm.size() - 1) / 2, "a lane's sum");
    ++next[l];
    if (random() % 4 == 0) std::this_thread::yield();
  }
}

void work_in_threads() {
  blocking_communicator comm;
  std::random_device device;
  const unsigned seed = device();
  std::vector<std::thread> threads;
  std::exception_ptr failed[4];
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      try {
        work(comm, t, seed + t);
      } catch (const std::exception& e) {
        failed[t] =
            std::make_exception_ptr(std::runtime_error{e.what() + (", seed " + std::to_string(seed))});
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& f : failed)
    if (f) std::rethrow_exception(f);
}

BOOST_AUTO_TEST_CASE(four_threads_on_twenty_lanes) {
  BOOST_TEST(run_ranks({.ranks = 2}, work_in_threads) == "");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
