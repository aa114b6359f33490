// Jobs of real processes whose calls take Asio's tokens: every call with every token, many lanes from many
// threads, children, and ends.
#include "every_call.hpp"

#include <asio_under_test.hpp>
#include <boost/test/unit_test.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <future>
#include <random>
#include <thread>

using namespace chorale;
using namespace chorale::testing;
using namespace std::chrono_literals;

namespace {

void good(asio_error_code code) { expect(!code, code.message()); }

/// Runs what others would await: an Asio coroutine to its end on this thread.
template <class T>
T run_here(asio::io_context& io, asio::awaitable<T> work) {
  std::future<T> ended = asio::co_spawn(io, std::move(work), asio::use_future);
  io.restart();
  io.run();
  return ended.get();
}

/// Makes described calls on a lane in one way, and waits for them.
struct one_way : collective_calls<one_way> {
  std::function<void(described_call, deadline)> make;
  void place(const described_call& described, deadline limit = {}) { make(described, limit); }
  template <std::same_as<described_call>... Calls>
  void batch(const Calls&... calls) {
    (place(calls), ...);
  }
};

asio::awaitable<void> by_tuple(const hosted_lane& lane, described_call described, deadline limit) {
  auto [code] = co_await lane.call_with(std::move(described), limit, as_tuple(asio::use_awaitable));
  good(code);
}
asio::awaitable<void> by_redirection(const hosted_lane& lane, described_call described, deadline limit) {
  asio_error_code code = errc::invalid_state;
  co_await lane.call_with(std::move(described), limit, asio::redirect_error(asio::use_awaitable, code));
  good(code);
}

void use_every_token() {
  hosted_communicator comm;
  const rank_t me = comm->rank();
  const rank_t n = comm->size();
  const hosted_lane lane = comm.lane(12);
  asio::io_context io;
  one_way by;
  by.make = [&](described_call what, deadline limit) {
    int called = 0;
    lane.call_with(std::move(what), limit, asio::bind_executor(io, [&](asio_error_code code) {
                     good(code);
                     ++called;
                   }));
    io.restart();
    io.run();
    expect(called == 1, "a callback is called once");
  };
  make_every_call(by, me, n, [](auto call) { call(); });
  by.make = [&](described_call what, deadline limit) {
    lane.call_with(std::move(what), limit, asio::use_future).get();
  };
  make_every_call(by, me, n, [](auto call) { call(); });
  by.make = [&](described_call what, deadline limit) {
    run_here(io, by_tuple(lane, std::move(what), limit));
  };
  make_every_call(by, me, n, [](auto call) { call(); });
  by.make = [&](described_call what, deadline limit) {
    run_here(io, by_redirection(lane, std::move(what), limit));
  };
  make_every_call(by, me, n, [](auto call) { call(); });
  by.make = [&](described_call what, deadline limit) {
    auto later = lane.call_with(std::move(what), limit, deferred);
    std::move(later)(asio::use_future).get();
  };
  make_every_call(by, me, n, [](auto call) { call(); });
}

task<std::int32_t> read(const std::array<std::int32_t, 1>& from) {
  const std::int32_t value = from[0];
  co_return value;
}

void use_every_call() {
  hosted_communicator comm;
  asio::io_context io;
  const auto by_awaiting = [&](auto call) { run_here(io, call(asio::use_awaitable)); };
  make_every_call(*comm, comm->rank(), comm->size(), by_awaiting);
  hosted_lane lane = comm.lane(12);
  make_every_call(lane, comm->rank(), comm->size(), by_awaiting);
  std::vector<float> sums(2, 1.0f);
  const hosted_plan plan = comm.plan(all_reduce(sums));
  for (int i = 0; i < 3; ++i) run_here(io, plan.run(asio::use_awaitable));
  lane.plan(barrier()).run(asio::use_future).get();
  plan.run(deadline{20s}, asio::use_future).get();
  std::array<std::int32_t, 1> last{1};
  comm->all_reduce(last, sum, asio::detached);
  while (comm.thread().run(read(last)) == 1) std::this_thread::yield();
  const auto n = static_cast<float>(comm->size());
  expect(sums.front() == n * n * n * n && last[0] == comm->size(), "planned and detached calls");
  comm->barrier(asio::use_future).get();
}

BOOST_AUTO_TEST_SUITE(asio_jobs)

BOOST_AUTO_TEST_CASE(every_token) { BOOST_TEST(run_ranks({.ranks = 2}, use_every_token) == ""); }
BOOST_AUTO_TEST_CASE(every_call) { BOOST_TEST(run_ranks({.ranks = 2}, use_every_call) == ""); }

constexpr std::uint64_t lanes = 20;
constexpr int rounds = 25;
constexpr unsigned threads = 4;

struct lane_work {
  std::array<std::vector<std::int32_t>, rounds> parts;
  int next = 0;
};

/// All calls of this thread's lanes at once, lanes mixed as this rank pleases. A call in a wrong place has a
/// wrong length, which is a mismatch.
void submit(const hosted_communicator& comm, std::vector<hosted_lane> handles, unsigned thread, unsigned seed,
            asio::thread_pool& pool, std::array<lane_work, lanes>& work, std::atomic<int>& right) {
  std::mt19937 random{seed + thread};
  std::vector<std::uint64_t> open;
  for (std::uint64_t l = thread; l < lanes; l += threads) open.push_back(l);
  while (!open.empty()) {
    const std::size_t i = random() % open.size();
    lane_work& w = work[open[i]];
    auto& part = w.parts[static_cast<std::size_t>(w.next)];
    part.assign(1 + static_cast<std::size_t>(w.next) + 30 * open[i], comm->rank() + w.next);
    const std::int32_t expected = comm->size() * w.next + comm->size() * (comm->size() - 1) / 2;
    handles[open[i]].all_reduce(part, sum,
                                asio::bind_executor(pool, [&right, &part, expected](asio_error_code code) {
                                  if (!code && part.front() == expected && part.back() == expected) ++right;
                                }));
    if (++w.next == rounds) open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void submit_from_threads() {
  hosted_communicator comm;
  asio::thread_pool pool{2};
  std::array<lane_work, lanes> work;
  std::atomic<int> right{0};
  const unsigned seed = std::random_device{}();
  std::vector<hosted_lane> handles;
  for (std::uint64_t l = 0; l < lanes; ++l) handles.push_back(comm.lane(1000 + l));
  std::vector<std::thread> callers;
  for (unsigned t = 0; t < threads; ++t)
    callers.emplace_back([&, t] { submit(comm, handles, t, seed, pool, work, right); });
  for (std::thread& t : callers) t.join();
  pool.join();
  expect(right == static_cast<int>(lanes) * rounds,
         std::to_string(right) + " calls were right, seed " + std::to_string(seed));
}

BOOST_AUTO_TEST_CASE(four_threads_on_twenty_lanes) {
  BOOST_TEST(run_ranks({.ranks = 2}, submit_from_threads) == "");
}

asio::awaitable<void> have_a_child(hosted_communicator& comm) {
  std::optional<hosted_communicator> child = co_await comm.split(0, -comm->rank(), asio::use_awaitable);
  expect(child.has_value() && (*child)->rank() == comm->size() - 1 - comm->rank(), "a child, turned round");
  std::vector<float> part(3, 1.0f);
  hosted_lane lane = child->lane(3);
  co_await lane.all_reduce(part, sum, asio::use_awaitable);
  expect(part.back() == static_cast<float>(comm->size()), "a sum in the child");
}

BOOST_AUTO_TEST_CASE(children_of_a_communicator) {
  BOOST_TEST(run_ranks({.ranks = 2}, [] {
               hosted_communicator comm;
               asio::io_context io;
               run_here(io, have_a_child(comm));
             }) == "");
}

asio::awaitable<void> outlive(hosted_communicator& comm) {
  std::vector<float> part(10, 1.0f);
  asio_error_code code;
  while (!code) co_await comm->all_reduce(part, sum, asio::redirect_error(asio::use_awaitable, code));
  expect(code == errc::peer_lost || code == errc::revoked, code.message());
  co_await comm.reset(asio::use_awaitable);
  co_await comm->all_reduce(part, sum, asio::use_awaitable);
}

BOOST_AUTO_TEST_CASE(a_rank_dies_and_the_others_go_on) {
  BOOST_TEST(run_ranks({.ranks = 3, .killed = 1}, [] {
               hosted_communicator comm;
               if (comm->rank() == 1) ::raise(SIGKILL);
               asio::io_context io;
               run_here(io, outlive(comm));
             }) == "");
}

void fork_with_a_context() {
  hosted_communicator comm;
  auto io = std::make_unique<asio::io_context>();
  std::vector<float> part(100'000, 1.0f);
  int called = 0;
  comm->all_reduce(part, sum, asio::bind_executor(*io, [&](asio_error_code) { ++called; }));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    asio_error_code code;
    asio::io_context own;
    comm->barrier(asio::bind_executor(own, [&](asio_error_code why) { code = why; }));
    own.run();
    const bool right = code == errc::forked;
    {
      const hosted_communicator inherited = std::move(comm);
    }
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a fork child is refused and can go");
  io->run();
  expect(called == 1, "the parent's operation ends");
}

BOOST_AUTO_TEST_CASE(a_fork_child_is_told) { BOOST_TEST(run_ranks({.ranks = 2}, fork_with_a_context) == ""); }

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
