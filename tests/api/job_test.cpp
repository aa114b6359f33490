// Communicators of real processes: every method, children, and how they end.
#include "job.hpp"

#include <boost/test/unit_test.hpp>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

using namespace chorale;
using namespace chorale::testing;
using namespace std::chrono_literals;

namespace {

constexpr const char* transports[] = {"auto", "tcp"};

std::vector<std::int32_t> filled(std::size_t count, std::int32_t value) {
  return std::vector<std::int32_t>(count, value);
}

task<void> use_every_method(communicator& comm) {
  const rank_t n = comm.size();
  const rank_t me = comm.rank();
  const auto ranks = static_cast<std::size_t>(n);
  const std::int32_t all = n * (n - 1) / 2;
  std::vector<std::int32_t> one = filled(2, me), out = filled(2, -1), many = filled(2 * ranks, -1);

  co_await comm.all_reduce(one, out);
  expect(out == filled(2, all), "all_reduce");
  co_await comm.all_reduce(one, out, chorale::max, deadline{10s});
  expect(out == filled(2, n - 1), "all_reduce, max");
  out = filled(2, -1);
  co_await comm.reduce(one, out, n - 1, premul_sum(std::int32_t{2}));
  expect(out == filled(2, me == n - 1 ? 2 * all : -1), "reduce");
  out = filled(2, me);
  co_await comm.broadcast(out, 1);
  expect(out == filled(2, 1), "broadcast");

  std::vector<std::int32_t> in_order;
  for (rank_t r = 0; r < n; ++r) in_order.insert(in_order.end(), 2, r);
  co_await comm.all_gather(one, many);
  expect(many == in_order, "all_gather");
  many = filled(2 * ranks, -1);
  co_await comm.gather(one, many, 0);
  expect(many == (me == 0 ? in_order : filled(2 * ranks, -1)), "gather");
  co_await comm.scatter(in_order, out, 0);
  expect(out == filled(2, me), "scatter");
  co_await comm.reduce_scatter(in_order, out);
  expect(out == filled(2, n * me), "reduce_scatter");
  co_await comm.all_to_all(in_order, many);
  expect(many == filled(2 * ranks, me), "all_to_all");
  co_await comm.scan(one, out);
  expect(out == filled(2, me * (me + 1) / 2), "scan");
  out = filled(2, -1);
  co_await comm.exscan(one, out);
  expect(out == filled(2, me == 0 ? -1 : me * (me - 1) / 2), "exscan");

  // Rank r has r elements.
  std::vector<std::uint64_t> counts(ranks);
  std::iota(counts.begin(), counts.end(), 0);
  const auto total = static_cast<std::size_t>(all);
  std::vector<std::int32_t> growing;
  for (rank_t r = 0; r < n; ++r) growing.insert(growing.end(), static_cast<std::size_t>(r), r);
  const std::vector<std::int32_t> own = filled(static_cast<std::size_t>(me), me);
  many = filled(total, -1);
  co_await comm.all_gather_v(own, many, counts);
  expect(many == growing, "all_gather_v");
  many = filled(total, -1);
  co_await comm.gather_v(own, many, counts, 2);
  expect(many == (me == 2 ? growing : filled(total, -1)), "gather_v");
  std::vector<std::int32_t> part = filled(static_cast<std::size_t>(me), -1);
  co_await comm.scatter_v(growing, part, counts, 2);
  expect(part == own, "scatter_v");
  co_await comm.reduce_scatter_v(growing, part, counts, chorale::min);
  expect(part == own, "reduce_scatter_v");
  const std::vector<std::uint64_t> to_each(ranks, static_cast<std::uint64_t>(me));
  std::vector<std::int32_t> sent = filled(ranks * static_cast<std::size_t>(me), me);
  many = filled(total, -1);
  co_await comm.all_to_all_v(sent, many, to_each, counts);
  expect(many == growing, "all_to_all_v");

  co_await comm.batch(chorale::send(one, (me + 1) % n), chorale::recv(out, (me + n - 1) % n),
                      chorale::barrier());
  expect(out == filled(2, (me + n - 1) % n), "send and recv");
}

task<std::int32_t> sum_over(communicator& comm, std::int32_t mine) {
  std::vector<std::int32_t> value{mine};
  co_await comm.all_reduce(value);
  co_return value.front();
}

task<void> split_by_parity(communicator& comm) {
  const rank_t me = comm.rank();
  // Downwards: the highest rank of a parity becomes 0.
  auto child = co_await comm.split(me % 2, -me);
  expect(child.has_value(), "a child");
  expect(child->size() == 3 && comm.size() == 6, "sizes");
  expect(child->rank() == (5 - me) / 2, "numbers by key");
  const std::int32_t mine = co_await sum_over(*child, me);
  expect(mine == (me % 2 == 0 ? 6 : 9), "a sum in the child");
  task<void> methods = use_every_method(*child);
  co_await std::move(methods);
  const std::int32_t whole = co_await sum_over(comm, me);
  expect(whole == 15, "a sum in the parent afterwards");

  // Children of children, keys of lanes in each, and both at once.
  auto grandchild = co_await child->split(child->rank() == 0 ? no_colour : 7);
  expect(grandchild.has_value() == (child->rank() != 0), "no colour, no child");
  std::vector<std::int32_t> a{1}, b{10}, c{100};
  auto in_parent = comm[5].all_reduce(a).start();
  auto in_child = (*child)[5].all_reduce(b).start();
  if (grandchild) co_await (*grandchild)[5].all_reduce(c);
  co_await std::move(in_child);
  co_await std::move(in_parent);
  expect(a.front() == 6 && b.front() == 30, "lanes of one key in parent and child");
  expect(!grandchild || (c.front() == 200 && grandchild->size() == 2), "a lane of the grandchild");
  auto twin = co_await child->dup();
  expect(twin.size() == 3 && twin.rank() == child->rank(), "dup");
  const std::int32_t again = co_await sum_over(twin, 1);
  expect(again == 3, "a sum in the twin");
  co_await comm.barrier();
}

task<void> disagree_in_a_child(communicator& comm) {
  auto child = co_await comm.split(0, -comm.rank());  // numbers turned round
  std::vector<float> data(8);
  ticket placed = child->rank() == 0 ? child->broadcast(data, 1) : child->broadcast(data, 2);
  error e = co_await outcome_of(std::move(placed));
  if (!e) e = co_await outcome_of(child->barrier());
  expect(e == errc::mismatch || e == errc::revoked, e.message());
  expect(e.message().find("root 1") != std::string::npos && e.message().find("root 2") != std::string::npos,
         e.message());
  expect(e.message().find("rank 0 called broadcast of 8 × f32, root 1") != std::string::npos, e.message());
  co_await comm.barrier();  // the parent does not mind
}

task<void> leave_a_child(communicator& comm) {
  auto child = co_await comm.split(0, -comm.rank());
  const rank_t in_child = child->rank();
  auto side = (*child)[3];
  if (in_child == 1) {
    child.reset();
  } else {
    const error e = co_await outcome_of(child->barrier());
    expect(e == errc::peer_left, e.message());
    expect(e.culprit() == 1, "the child's number: " + e.message());
    const error later = co_await outcome_of(side.barrier());
    expect(later == errc::peer_left, later.message());
  }
  const std::int32_t whole = co_await sum_over(comm, 1);
  expect(whole == comm.size(), "the parent goes on");
  auto next = co_await comm.split(0);
  const std::int32_t anew = co_await sum_over(*next, 1);
  expect(anew == comm.size(), "and has children again");
}

task<void> outlive_the_parent(communicator& comm) {
  std::optional<communicator> child = co_await comm.dup();
  co_await comm.barrier();
  {
    communicator gone = std::move(comm);
    co_await child->barrier();
  }
  const error e = co_await outcome_of(child->barrier());
  expect(e == errc::revoked || e == errc::peer_left, e.message());
}

task<void> lose_a_member(communicator& comm) {
  std::optional<communicator> child = co_await comm.split(0, -comm.rank());
  co_await child->barrier();
  if (comm.rank() == 1) {
    // Not before the others have come through the barrier.
    std::vector<float> word(1);
    for (const rank_t other : {0, 2, 3}) co_await comm.recv(word, other);
    ::raise(SIGKILL);
  }
  const std::vector<float> through(1);
  co_await comm.send(through, 1);
  const error e = co_await outcome_of(child->barrier());
  expect(e == errc::peer_lost || e == errc::revoked, e.message());
  expect(e.culprit() == comm.size() - 2, "the child's number: " + e.message());
  child.reset();
  co_await comm.reset();
  expect(comm.size() == 3, "the survivors");
  auto next = co_await comm.split(comm.rank() == 0 ? 1 : 2);
  const std::int32_t sum = co_await sum_over(*next, 1);
  expect(sum == (comm.rank() == 0 ? 1 : 2), "a child of the new epoch");
}

task<void> split_too_late(communicator& comm) {
  std::vector<float> word(1);
  lane aside = comm[8];
  if (comm.rank() != 0) {
    task<std::optional<communicator>> splitting = comm.split(0, 0, deadline{50ms});
    task<result<std::optional<communicator>>> guarded = as_result(std::move(splitting));
    auto r = co_await std::move(guarded);
    expect(!r && r.error() == errc::timed_out, r ? "it was made" : r.error().message());
    co_await aside.send(word, 0);
  } else {
    for (rank_t other = 1; other < comm.size(); ++other) co_await aside.recv(word, other);
    task<result<std::optional<communicator>>> guarded = as_result(comm.split(0));
    auto r = co_await std::move(guarded);
    expect(!r, "it was made");
  }
  co_await comm[9].barrier();
}

/// What passes between the ranks and a child of one of them, outside of any communicator.
struct outside {
  std::atomic<bool> child_looks{false};
  std::atomic<bool> message_is_there{false};
};

bool comes(const std::atomic<bool>& flag) {
  const time_point patience = steady_now() + 20s;
  while (!flag && steady_now() < patience) std::this_thread::yield();
  return flag;
}

/// The child of rank 0 awaits what its parent started, and what ends it lies in memory that the child maps.
task<void> fork_with_a_call_under_way(communicator& comm, outside& between) {
  co_await comm.barrier();
  if (comm.rank() != 0) {
    expect(comes(between.child_looks), "the child got as far as its await");
    started op = comm.barrier().start();
    between.message_is_there = true;
    co_await std::move(op);
    co_return;
  }
  started op = comm.barrier().start();
  const pid_t child = ::fork();
  if (child == 0) {
    between.child_looks = true;
    const bool there = comes(between.message_is_there);
    as_result_of<started> awaited = as_result(std::move(op));
    const result<void> r = co_await std::move(awaited);
    ::_exit(there && !r && r.error() == errc::forked ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child is refused");
  co_await std::move(op);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(jobs)

BOOST_AUTO_TEST_CASE(every_method_among_processes) {
  for (const char* transport : transports)
    for (const rank_t n : {3, 4}) {
      const std::string wrong = run_job({n, transport}, use_every_method);
      BOOST_TEST(wrong.empty(), transport << ": " << wrong);
    }
}

BOOST_AUTO_TEST_CASE(children) {
  for (const char* transport : transports) {
    const std::string wrong = run_job({6, transport}, split_by_parity);
    BOOST_TEST(wrong.empty(), transport << ": " << wrong);
  }
}

BOOST_AUTO_TEST_CASE(a_mismatch_in_a_child_names_its_ranks) {
  const std::string wrong = run_job({3, "auto"}, disagree_in_a_child);
  BOOST_TEST(wrong.empty(), wrong);
}

BOOST_AUTO_TEST_CASE(leaving_a_child) {
  for (const char* transport : transports) {
    const std::string wrong = run_job({3, transport}, leave_a_child);
    BOOST_TEST(wrong.empty(), transport << ": " << wrong);
  }
}

BOOST_AUTO_TEST_CASE(a_child_without_its_parent) {
  const std::string wrong = run_job({3, "auto"}, outlive_the_parent);
  BOOST_TEST(wrong.empty(), wrong);
}

BOOST_AUTO_TEST_CASE(a_lost_member_ends_the_child) {
  for (const char* transport : transports) {
    const std::string wrong = run_job({4, transport, 1}, lose_a_member);
    BOOST_TEST(wrong.empty(), transport << ": " << wrong);
  }
}

BOOST_AUTO_TEST_CASE(a_fork_child_takes_nothing_from_its_parent) {
  void* const shared =
      ::mmap(nullptr, sizeof(outside), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  BOOST_REQUIRE(shared != MAP_FAILED);
  outside& between = *new (shared) outside;
  const auto body = [&](communicator& comm) { return fork_with_a_call_under_way(comm, between); };
  const std::string wrong = run_job({.ranks = 2}, body);
  BOOST_TEST(wrong.empty(), wrong);
  ::munmap(shared, sizeof(outside));
}

BOOST_AUTO_TEST_CASE(a_split_that_not_all_make_in_time) {
  const std::string wrong = run_job({3, "auto"}, split_too_late);
  BOOST_TEST(wrong.empty(), wrong);
}

BOOST_AUTO_TEST_SUITE_END()
