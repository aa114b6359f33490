// Windows among real processes: over shared memory, over tcp, over registered memory, and how they end.
#include "job.hpp"
#include <chorale/async/sleep.hpp>

#include <boost/test/unit_test.hpp>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <vector>

using namespace chorale;
using namespace chorale::testing;
using namespace std::chrono_literals;

namespace {

constexpr const char* transports[] = {"auto", "tcp"};

template <class T>
task<error> ended(window_call<T> op) {
  auto awaited = as_result(std::move(op));
  auto r = co_await std::move(awaited);
  co_return r ? error{} : r.error();
}
template <class T>
task<error> ended(window_started<T> op) {
  auto awaited = as_result(std::move(op));
  auto r = co_await std::move(awaited);
  co_return r ? error{} : r.error();
}
template <class T>
task<error> how_it_ended(task<T> work) {
  task<result<T>> guarded = as_result(std::move(work));
  auto r = co_await std::move(guarded);
  co_return r ? error{} : r.error();
}

/// Rows of growing length around the ring, forwards by put and back by get, sums at rank 0.
task<void> use(window& w) {
  const rank_t me = w.rank(), n = w.size();
  const rank_t next = (me + 1) % n, before = (me + n - 1) % n;
  std::uint64_t step = 0;
  for (const std::size_t size : {1UL, 1000UL, 200000UL}) {
    ++step;
    std::vector<std::int32_t> row(size);
    std::iota(row.begin(), row.end(), me * 1000);
    co_await w.put(next, 64, row);
    co_await w.signal(next, 0);
    const std::uint64_t reached = co_await w.wait(0, step);
    expect(reached == step, "the counter");
    std::iota(row.begin(), row.end(), before * 1000);
    const auto mine = w.local<std::int32_t>().subspan(16, size);
    expect(std::ranges::equal(mine, row), "what was put");
    std::vector<std::int32_t> back(size);
    co_await w.get(next, 64, back);
    std::iota(row.begin(), row.end(), me * 1000);
    expect(back == row, "what was got");
    co_await w.signal(before, 1);
    co_await w.wait(1, step);
  }
  const std::vector<float> ones(500, 1);
  for (int times = 0; times < 20; ++times) co_await w.accumulate(0, w.bytes_of(0) - 2000, ones);
  co_await w.signal(0, 2);
  if (me == 0) {
    co_await w.wait(2, static_cast<std::uint64_t>(n));
    const auto sums = w.local<float>().last(500);
    expect(std::ranges::all_of(sums, [&](float v) { return v == 20.0f * static_cast<float>(n); }), "sums");
  }
}

constexpr std::uint64_t part_bytes = 64 + 800000 + 2000 + 32;

task<void> created(communicator& comm) {
  auto w = co_await comm.create_window(part_bytes + 4 * static_cast<std::uint64_t>(comm.rank()), {3});
  expect(w.bytes_of(2) == part_bytes + 8, "sizes that differ");
  const bool shared = comm.transport_to((comm.rank() + 1) % comm.size()) == "shm";
  expect(w.direct((comm.rank() + 1) % comm.size()) == shared, "direct where memory is shared");
  task<void> using_it = use(w);
  co_await std::move(using_it);
  co_await w.close();
  const error later = co_await ended(w.signal(0, 0));
  expect(later == errc::invalid_state, "closed: " + later.message());
  const error again = co_await how_it_ended(w.close());
  expect(again == errc::invalid_state, "closed twice: " + again.message());
  co_await comm.barrier();
}

/// Rank 1 brings memory of its own, the others take the library's.
task<void> registered(communicator& comm) {
  std::vector<std::byte> memory(part_bytes, std::byte{0});
  auto w = comm.rank() == 1 ? co_await comm.register_window(memory) : co_await comm.create_window(part_bytes);
  expect(!w.direct(1) || comm.rank() == 1, "registered memory is its owner's alone");
  task<void> using_it = use(w);
  co_await std::move(using_it);
  expect(comm.rank() != 1 || w.bytes().data() == memory.data(), "the memory given");
  co_await w.close();
}

task<void> hold_and_use(communicator& on) {
  auto w = co_await on.create_window(part_bytes, {3});
  task<void> using_it = use(w);
  co_await std::move(using_it);
  co_await w.close();
}

/// Windows of a child and of two duplicates, made at the same time in other orders on other ranks.
task<void> several(communicator& comm) {
  auto child = co_await comm.split(comm.rank() % 2);
  auto twin = co_await comm.dup();
  task<void> a = hold_and_use(*child);
  task<void> b = hold_and_use(twin);
  task<void> c = hold_and_use(comm);
  if (comm.rank() % 2 == 0)
    co_await when_all(std::move(a), std::move(b), std::move(c));
  else
    co_await when_all(std::move(c), std::move(b), std::move(a));
}

/// Nothing accumulates: 300 windows of a MiB, used and given back.
task<void> many(communicator& comm) {
  for (int i = 0; i < 300; ++i) {
    auto w = co_await comm.create_window(1 << 20, {2});
    co_await w.signal((comm.rank() + 1) % comm.size(), 1);
    co_await w.wait(1, 1);
    co_await w.close();
  }
}

/// Whoever waits sleeps, and is woken.
task<void> sleepers(communicator& comm) {
  const environment& here = co_await this_environment{};
  here.loop->set_spin_budget(duration::zero());
  auto w = co_await comm.create_window(64);
  co_await comm.barrier();
  const auto before = here.loop->statistics().sleeps;
  for (std::uint64_t step = 1; step <= 200; ++step) {
    if (comm.rank() == 0) co_await w.signal(1, 0);
    if (comm.rank() <= 1) co_await w.wait(0, step, deadline{20s});
    if (comm.rank() == 1) co_await w.signal(0, 0);
  }
  expect(comm.rank() != 1 || here.loop->statistics().sleeps > before, "it slept");
  co_await w.close();
}

task<void> killed_target(communicator& comm) {
  auto w = co_await comm.create_window(std::uint64_t{8} << 20);
  co_await comm.barrier();
  if (comm.rank() == 1) {
    co_await w.wait(0, 1);
    ::raise(SIGKILL);
  }
  const std::vector<std::uint8_t> much(std::size_t{8} << 20, 1);
  auto waiting = w.wait(5, 1).start();
  // Its answer may be lost with the rank.
  if (comm.rank() == 0) static_cast<void>(co_await ended(w.signal(1, 0)));
  // Puts go on until the death is known, or end with it.
  error putting;
  while (!putting && !waiting.ready()) {
    putting = co_await ended(w.put(1, 0, much));
    task<void> turn = sleep_for(1ms);
    co_await std::move(turn);
  }
  expect(!putting || putting == errc::peer_lost || putting == errc::revoked, "put: " + putting.message());
  expect(!putting || putting.culprit() == 1, putting.message());
  const error waited = co_await ended(std::move(waiting));
  // Revoked: the death was known here before the wait began.
  expect(waited == errc::peer_lost || waited == errc::revoked, "wait: " + waited.message());
  expect(waited.culprit() == 1, waited.message());
  const error later = co_await ended(w.put(1, 0, much));
  expect(later == errc::revoked && later.culprit() == 1, "later: " + later.message());
  co_await comm.reset();
  const error old = co_await ended(w.signal(0, 0));
  expect(old == errc::revoked, "after a reset: " + old.message());
  auto anew = co_await comm.create_window(1000);
  co_await anew.signal((comm.rank() + 1) % comm.size(), 0);
  co_await anew.wait(0, 1);
  co_await anew.close();
}

task<void> leaves_early(communicator& comm) {
  auto w = co_await comm.create_window(1 << 20);
  co_await comm.barrier();
  if (comm.rank() == 1) co_return;  // the window goes unclosed, and then the communicator
  const error waited = co_await ended(w.wait(0, 1));
  const bool known_before = waited == errc::revoked;
  expect(waited == errc::dropped || waited == errc::peer_left || known_before, waited.message());
  // Who learnt of it first has left as well.
  expect(waited.culprit() != comm.rank() && waited.culprit() != no_rank, waited.message());
  const error closing = co_await how_it_ended(w.close());
  expect(static_cast<bool>(closing), "nobody can close it");
}

/// Rank 1 computes and turns no engine: what needs it ends by its deadline, and nothing is lost afterwards.
task<void> busy_owner(communicator& comm) {
  std::vector<std::byte> memory(std::size_t{16} << 20);
  auto w = co_await comm.register_window(memory);
  co_await comm.barrier();
  if (comm.rank() == 1) {
    const auto until = std::chrono::steady_clock::now() + 300ms;
    while (std::chrono::steady_clock::now() < until) {  // computes
    }
  } else if (comm.rank() == 0) {
    error late;
    {
      const std::vector<std::uint8_t> much(std::size_t{16} << 20, 1);
      late = co_await ended(w.put(1, 0, much, deadline{20ms}));
    }
    expect(late == errc::timed_out && late.culprit() == 1, late.message());
    const std::vector<std::uint8_t> few(100, 2);
    co_await w.put(1, 5, few);
  }
  co_await comm.barrier();
  expect(comm.rank() != 1 || memory[104] == std::byte{2}, "what came after the deadline");
  co_await w.close();
}

task<void> late_close(communicator& comm) {
  auto w = co_await comm.create_window(100);
  std::vector<float> word(1);
  if (comm.rank() != 0) {
    const error e = co_await how_it_ended(w.close(deadline{30ms}));
    expect(e == errc::timed_out || e == errc::revoked, e.message());
    co_await comm.send(word, 0);
    co_return;
  }
  for (rank_t r = 1; r < comm.size(); ++r) co_await comm.recv(word, r);
  const error e = co_await ended(w.signal(1, 0));
  expect(static_cast<bool>(e), "the window ended");
  const error closing = co_await how_it_ended(w.close());
  expect(static_cast<bool>(closing), "it can not be closed any more");
}

/// A close that is never awaited is as good as none: nobody waits for this rank.
task<void> forgotten_close(communicator& comm) {
  auto w = co_await comm.create_window(100);
  co_await comm.barrier();
  if (comm.rank() == 1) {
    {
      const task<void> forgotten = w.close();
    }
    const error gone = co_await ended(w.signal(0, 0));
    expect(gone == errc::invalid_state, gone.message());
    expect(w.bytes().empty(), "the window went with the task");
  } else {
    const error waited = co_await ended(w.wait(0, 1));
    expect(waited == errc::dropped || waited == errc::revoked, waited.message());
    const error closing = co_await how_it_ended(w.close());
    expect(static_cast<bool>(closing), "nobody can close it");
  }
  co_await comm.barrier();
}

/// Two windows of one communicator, closed at the same time in other orders on other ranks.
task<void> closed_in_any_order(communicator& comm) {
  auto first = co_await comm.create_window(part_bytes, {3});
  auto second = co_await comm.create_window(part_bytes, {3});
  task<void> a = use(first);
  task<void> b = use(second);
  co_await when_all(std::move(a), std::move(b));
  if (comm.rank() % 2 == 0) {
    co_await when_all(first.close(), second.close());
  } else {
    task<void> later = first.close();
    co_await when_all(second.close(), std::move(later));
  }
}

/// What was begun and not awaited arrives before the close has ended, and what is dropped too.
task<void> closed_with_operations(communicator& comm) {
  std::vector<std::byte> memory(std::size_t{4} << 20);
  auto w = co_await comm.register_window(memory);
  const rank_t next = (comm.rank() + 1) % comm.size();
  const std::vector<std::uint8_t> much(std::size_t{4} << 20, 3);
  auto waiting = w.wait(1, 1).start();
  auto held = w.put(next, 0, much).start();
  static_cast<void>(w.put(next, 0, much).start());
  co_await w.close(deadline{20s});
  expect(std::ranges::all_of(memory, [](std::byte b) { return b == std::byte{3}; }), "all of both puts");
  const error put = co_await ended(std::move(held));
  expect(!put, put.message());
  const error waited = co_await ended(std::move(waiting));
  expect(waited == errc::cancelled, waited.message());
}

task<void> empty_parts(communicator& comm) {
  auto w = co_await comm.create_window(0, {1});
  const std::vector<float> none;
  std::vector<float> nothing;
  const rank_t next = (comm.rank() + 1) % comm.size();
  co_await w.put(next, 0, none);
  co_await w.accumulate(next, 0, none);
  co_await w.get(next, 0, nothing);
  co_await w.signal(next, 0);
  co_await w.wait(0, 1);
  const error beyond = co_await ended(w.put(next, 1, none));
  expect(beyond == errc::invalid_argument, beyond.message());
  co_await w.close();
  auto mute = co_await comm.create_window(100, {0});
  const error counter = co_await ended(mute.signal(next, 0));
  expect(counter == errc::invalid_argument, counter.message());
  co_await mute.close();
}

/// Windows have lanes of their own: what resets the communicator's neither ends one nor makes a name again.
task<void> reset_between(communicator& comm) {
  auto before = co_await comm.create_window(64);
  co_await comm.reset_lane();
  auto after = co_await comm.create_window(64);
  const rank_t next = (comm.rank() + 1) % comm.size();
  co_await before.signal(next, 0, 1);
  co_await after.signal(next, 0, 2);
  expect(co_await before.wait(0, 1) == 1, "the first");
  expect(co_await after.wait(0, 2) == 2, "the second");
  co_await after.close();
  co_await before.close();
}

task<void> differs(communicator& comm) {
  std::vector<float> word(1);
  error e;
  if (comm.rank() == 0)
    e = co_await how_it_ended(comm.create_window(100));
  else
    e = co_await outcome_of(comm.barrier());
  expect(e == errc::mismatch || e == errc::revoked, e.message());
  expect(e.message().find("window") != std::string::npos, e.message());
}

task<void> refused(communicator& comm) {
  const error counters = co_await how_it_ended(comm.create_window(1, {100000}));
  expect(counters == errc::invalid_argument, counters.message());
  const error large = co_await how_it_ended(comm.create_window(std::uint64_t{1} << 60));
  expect(large == errc::invalid_argument, large.message());
  const error null = co_await how_it_ended(comm.register_window(std::span<std::byte>{}.first(0)));
  expect(!null, "an empty window is one");
  alignas(8) static std::byte bytes_here[64];
  const error uneven = co_await how_it_ended(comm.register_window(std::span{bytes_here}.subspan(4)));
  expect(uneven == errc::invalid_argument, uneven.message());
  // Too much for this machine, on one rank: everybody learns who could not.
  const std::uint64_t bytes = comm.rank() == 1 ? std::uint64_t{1} << 46 : 100;
  const error memory = co_await how_it_ended(comm.create_window(bytes));
  if (memory) expect(memory.culprit() == 1 || comm.rank() == 1, memory.message());
  co_await comm.barrier();
}

void check(const char* transport, rank_t ranks, const rank_body& body, rank_t killed = no_rank) {
  const std::string wrong = run_job({ranks, transport, killed}, body);
  BOOST_TEST(wrong.empty(), transport << ": " << wrong);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(window_jobs)

BOOST_AUTO_TEST_CASE(memory_of_the_library) {
  for (const char* transport : transports) check(transport, 3, created);
}
BOOST_AUTO_TEST_CASE(memory_of_the_caller) {
  for (const char* transport : transports) check(transport, 3, registered);
}
BOOST_AUTO_TEST_CASE(several_at_once_and_in_children) {
  for (const char* transport : transports) check(transport, 4, several);
}
BOOST_AUTO_TEST_CASE(many_one_after_the_other) { check("auto", 3, many); }
BOOST_AUTO_TEST_CASE(a_sleeping_waiter_is_woken) {
  for (const char* transport : transports) check(transport, 2, sleepers);
}
BOOST_AUTO_TEST_CASE(a_killed_target) {
  for (const char* transport : transports) check(transport, 3, killed_target, 1);
}
BOOST_AUTO_TEST_CASE(a_rank_that_leaves_without_closing) {
  for (const char* transport : transports) check(transport, 3, leaves_early);
}
BOOST_AUTO_TEST_CASE(an_owner_that_computes) {
  for (const char* transport : transports) check(transport, 2, busy_owner);
}
BOOST_AUTO_TEST_CASE(a_close_that_not_all_make_in_time) { check("auto", 3, late_close); }
BOOST_AUTO_TEST_CASE(a_close_that_is_never_awaited) {
  for (const char* transport : transports) check(transport, 3, forgotten_close);
}
BOOST_AUTO_TEST_CASE(closes_in_any_order) {
  for (const char* transport : transports) check(transport, 3, closed_in_any_order);
}
BOOST_AUTO_TEST_CASE(a_close_with_operations_under_way) {
  for (const char* transport : transports) check(transport, 3, closed_with_operations);
}
BOOST_AUTO_TEST_CASE(nothing_in_them) {
  for (const char* transport : transports) check(transport, 3, empty_parts);
}
BOOST_AUTO_TEST_CASE(nine_ranks) {
  for (const char* transport : transports) check(transport, 9, created);
}
BOOST_AUTO_TEST_CASE(beside_a_lane_that_is_reset) {
  for (const char* transport : transports) check(transport, 3, reset_between);
}
BOOST_AUTO_TEST_CASE(a_creation_that_not_all_make) {
  for (const char* transport : transports) check(transport, 3, differs);
}
BOOST_AUTO_TEST_CASE(what_can_not_be_created) {
  for (const char* transport : transports) check(transport, 2, refused);
}

BOOST_AUTO_TEST_SUITE_END()
