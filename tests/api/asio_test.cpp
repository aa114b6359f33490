// Asio's tokens on chorale's operations: whatever becomes of handlers, executors and contexts, an operation
// ends before its buffers may go, and nothing is used after.
#include "choir.hpp"

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace chorale {
namespace {

using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(asio_adapter)

BOOST_AUTO_TEST_CASE(callbacks_run_once_on_their_executor) {
  choir pair;
  asio::io_context io;
  std::vector<float> a(1000, 1.0f);
  std::vector<float> b(1000, 2.0f);
  int called = 0;
  bool in_initiation = true;
  const auto home = std::this_thread::get_id();
  const auto handler = [&](asio_error_code code) {
    ++called;
    BOOST_TEST(!code);
    BOOST_TEST(!in_initiation);
    BOOST_TEST((std::this_thread::get_id() == home));
  };
  pair.all_reduce(0, a, asio::bind_executor(io, handler));
  pair.all_reduce(1, b, asio::bind_executor(io, handler));
  in_initiation = false;
  io.run();  // work is kept: returns when both have been called
  BOOST_TEST(called == 2);
  BOOST_TEST(a == std::vector<float>(1000, 3.0f));
  BOOST_TEST(b == a);
}

BOOST_AUTO_TEST_CASE(handlers_without_an_executor) {
  choir pair;
  std::vector<float> a(10, 1.0f);
  std::vector<float> b(10, 2.0f);
  std::promise<asio_error_code> ended;
  pair.all_reduce(0, a, [&](asio_error_code code) { ended.set_value(code); });
  BOOST_TEST(pair.all_reduce_directly(1, b).has_value());
  BOOST_TEST(!ended.get_future().get());
  BOOST_TEST(a == b);
}

/// Counts what a handler's associated allocator has out.
template <class T>
struct counting_allocator {
  using value_type = T;
  std::shared_ptr<std::atomic<int>> out;
  explicit counting_allocator(std::shared_ptr<std::atomic<int>> counter) : out{std::move(counter)} {}
  template <class U>
  explicit counting_allocator(const counting_allocator<U>& other) : out{other.out} {}
  T* allocate(std::size_t n) { return ++*out, std::allocator<T>{}.allocate(n); }
  void deallocate(T* p, std::size_t n) { --*out, std::allocator<T>{}.deallocate(p, n); }
  friend bool operator==(const counting_allocator&, const counting_allocator&) = default;
};

struct allocating_handler {
  using allocator_type = counting_allocator<std::byte>;
  std::shared_ptr<std::atomic<int>> out;
  int* seen;
  [[nodiscard]] allocator_type get_allocator() const { return allocator_type{out}; }
  void operator()(asio_error_code) const { *seen = *out; }
};

BOOST_AUTO_TEST_CASE(memory_comes_from_the_handler_and_is_back_before_it_runs) {
  choir pair;
  asio::io_context io;
  std::vector<float> a(10, 1.0f);
  std::vector<float> b(10, 2.0f);
  auto out = std::make_shared<std::atomic<int>>(0);
  int seen = -1;
  pair.all_reduce(0, a, asio::bind_executor(io, allocating_handler{out, &seen}));
  BOOST_TEST(*out >= 1);
  BOOST_TEST(pair.all_reduce_directly(1, b).has_value());
  io.run();
  BOOST_TEST(seen == 0);
  BOOST_TEST(*out == 0);
}

BOOST_AUTO_TEST_CASE(futures) {
  choir pair;
  std::vector<float> a(10, 1.0f);
  std::vector<float> b(10, 2.0f);
  std::future<void> first = pair.all_reduce(0, a, asio::use_future);
  std::future<void> second = pair.all_reduce(1, b, asio::use_future);
  first.get();
  second.get();
  BOOST_TEST(a == std::vector<float>(10, 3.0f));
}

asio::awaitable<void> sing(choir& among, rank_t rank, int rounds, int& sung) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<float> part(1 + static_cast<std::size_t>(round) * 50, static_cast<float>(rank + round));
    co_await among.all_reduce(rank, part, asio::use_awaitable);
    const auto expected = static_cast<float>(3 + 3 * round);
    if (part.front() == expected && part.back() == expected) ++sung;
  }
}

BOOST_AUTO_TEST_CASE(coroutines) {
  choir trio{3, testing::medium::mixed};
  asio::io_context io;
  int sung = 0;
  for (rank_t r = 0; r < 3; ++r) asio::co_spawn(io, sing(trio, r, 100, sung), asio::detached);
  io.run();
  BOOST_TEST(sung == 300);
}

BOOST_AUTO_TEST_CASE(the_call_takes_the_place_not_the_start) {
  choir pair;
  asio::io_context io;
  std::vector<float> a(10, 1.0f);
  std::vector<float> b(20, 1.0f);
  watched first;
  watched second;
  auto early = pair.all_reduce(0, a, deferred);
  auto late = pair.all_reduce(0, b, deferred);
  std::move(late)(asio::bind_executor(io, second.handler()));
  std::move(early)(asio::bind_executor(io, first.handler()));
  std::vector<float> c(10, 1.0f);
  std::vector<float> d(20, 1.0f);
  BOOST_TEST(pair.all_reduce_directly(1, c).has_value());  // a mismatch, were it the other way round
  BOOST_TEST(pair.all_reduce_directly(1, d).has_value());
  io.run();
  BOOST_TEST(first.called == 1);
  BOOST_TEST(second.called == 1);
  BOOST_TEST(!first.outcome);
  BOOST_TEST(!second.outcome);
}

BOOST_AUTO_TEST_CASE(an_operation_starts_once) {
  choir pair;
  asio::io_context io;
  std::vector<float> a(10, 1.0f);
  std::vector<float> b(10, 2.0f);
  watched first;
  watched second;
  auto operation = pair.all_reduce(0, a, deferred);
  auto copy = [&] {
    if constexpr (std::is_copy_constructible_v<decltype(operation)>)
      return operation;
    else
      return std::move(operation);
  }();
  std::move(copy)(asio::bind_executor(io, first.handler()));
  if constexpr (std::is_copy_constructible_v<decltype(operation)>) {
    std::move(operation)(asio::bind_executor(io, second.handler()));
    io.run_one();
    BOOST_TEST((second.outcome == errc::invalid_state));
  }
  BOOST_TEST(pair.all_reduce_directly(1, b).has_value());
  io.run();
  BOOST_TEST(first.called == 1);
  BOOST_TEST(!first.outcome);
}

BOOST_AUTO_TEST_CASE(calls_of_one_strand_keep_their_order) {
  choir pair;
  asio::thread_pool pool{2};
  auto strand = asio::make_strand(pool);
  std::vector<std::vector<float>> parts;
  for (std::size_t i = 0; i < 200; ++i) parts.emplace_back(1 + i % 7, 1.0f);
  std::atomic<int> right{0};
  asio::post(strand, [&] {
    for (auto& part : parts)
      pair.all_reduce(0, part,
                      asio::bind_executor(strand, [&](asio_error_code code) { right += code ? 0 : 1; }));
  });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::vector<float> theirs(1 + i % 7, 1.0f);
    BOOST_TEST(pair.all_reduce_directly(1, theirs).has_value());
  }
  pool.join();
  BOOST_TEST(right == 200);
}

BOOST_AUTO_TEST_CASE(an_exception_between_call_and_start_frees_the_peers) {
  choir pair;
  std::vector<float> b(10, 1.0f);
  try {
    std::vector<float> a(10, 1.0f);
    [[maybe_unused]] auto operation = pair.all_reduce(0, a, deferred);
    throw std::runtime_error{"between"};
  } catch (const std::runtime_error&) {
  }
  const auto outcome = pair.all_reduce_directly(1, b);
  BOOST_REQUIRE(!outcome.has_value());
  BOOST_TEST(outcome.error().message().find("dropped") != std::string::npos, outcome.error().message());
}

BOOST_AUTO_TEST_CASE(a_dropped_started_operation_goes_on) {
  choir pair;
  std::vector<float> a(10, 1.0f);
  std::vector<float> b(10, 2.0f);
  static_cast<void>(pair.all_reduce(0, a, asio::use_future));
  BOOST_TEST(pair.all_reduce_directly(1, b).has_value());
  BOOST_TEST(b == std::vector<float>(10, 3.0f));
}

BOOST_AUTO_TEST_CASE(cancellation_from_another_strand) {
  for (int round = 0; round < 50; ++round) {
    choir pair;
    asio::thread_pool pool{2};
    auto strand = asio::make_strand(pool);
    auto other = asio::make_strand(pool);
    asio::cancellation_signal signal;
    watched op;
    auto buffer = std::make_unique<std::vector<float>>(100'000, 1.0f);
    asio::post(strand, [&] {
      pair.all_reduce(0, *buffer,
                      asio::bind_cancellation_slot(signal.slot(), asio::bind_executor(strand, op.handler())));
    });
    asio::post(other, [&] { asio::post(strand, [&] { signal.emit(asio::cancellation_type::terminal); }); });
    pool.join();
    BOOST_REQUIRE_EQUAL(op.called, 1);
    BOOST_TEST((op.outcome == asio::error::operation_aborted));
    buffer.reset();
    std::vector<float> b(100'000, 2.0f);
    BOOST_TEST(!pair.all_reduce_directly(1, b).has_value());
  }
}

BOOST_AUTO_TEST_CASE(every_kind_of_cancellation_stops_and_ends_the_lane) {
  for (const auto kind : {asio::cancellation_type::terminal, asio::cancellation_type::partial,
                          asio::cancellation_type::total, asio::cancellation_type::all}) {
    choir pair;
    asio::io_context io;
    asio::cancellation_signal signal;
    watched op;
    std::vector<float> a(100'000, 1.0f);  // more than goes in advance
    pair.all_reduce(0, a, asio::bind_cancellation_slot(signal.slot(), asio::bind_executor(io, op.handler())));
    signal.emit(kind);
    std::vector<float> b(100'000, 2.0f);
    const auto peer = pair.all_reduce_directly(1, b);
    io.run();
    BOOST_TEST(op.called == 1);
    BOOST_TEST((op.outcome == asio::error::operation_aborted));
    BOOST_TEST(!signal.slot().has_handler());
    BOOST_REQUIRE(!peer.has_value());
    BOOST_TEST(peer.error().message().find("cancelled") != std::string::npos, peer.error().message());
  }
}

BOOST_AUTO_TEST_CASE(cancelling_and_ending_at_once) {
  for (int round = 0; round < 200; ++round) {
    choir pair;
    asio::io_context io;
    asio::cancellation_signal signal;
    watched op;
    std::vector<float> a(10, 1.0f);
    std::vector<float> b(10, 2.0f);
    pair.all_reduce(0, a, asio::bind_cancellation_slot(signal.slot(), asio::bind_executor(io, op.handler())));
    std::future<void> peer = pair.all_reduce(1, b, asio::use_future);
    signal.emit(asio::cancellation_type::terminal);
    io.run();
    BOOST_REQUIRE_EQUAL(op.called, 1);
    BOOST_TEST((!op.outcome || op.outcome == asio::error::operation_aborted));
    try {
      peer.get();
    } catch (const asio_system_error&) {
    }
  }
}

BOOST_AUTO_TEST_CASE(a_destroyed_context_takes_nothing_with_it_that_is_in_use) {
  for (const std::size_t count : {10u, 500'000u})
    for (int round = 0; round < 50; ++round) {
      choir pair;
      watched op;
      std::vector<float> b(count, 2.0f);
      std::future<void> peer;
      {
        auto buffer = std::make_unique<std::vector<float>>(count, 1.0f);
        auto io = std::make_unique<asio::io_context>();
        pair.all_reduce(0, *buffer, asio::bind_executor(*io, op.handler()));
        if (round % 2 == 0) peer = pair.all_reduce(1, b, asio::use_future);  // in the middle of it
        io.reset();
        buffer.reset();  // the address sanitizer sees whoever comes late
      }
      BOOST_TEST(op.called == 0);
      BOOST_TEST(op.handlers() == 0);
      if (!peer.valid()) peer = pair.all_reduce(1, b, asio::use_future);
      try {
        peer.get();
      } catch (const asio_system_error&) {
      }
    }
}

asio::awaitable<void> alone(choir& among, int& returned) {
  std::vector<float> part(1000, 1.0f);
  co_await among.all_reduce(0, part, asio::use_awaitable);
  ++returned;
}

BOOST_AUTO_TEST_CASE(a_coroutine_that_waits_is_destroyed_with_its_context) {
  choir pair;
  int returned = 0;
  {
    asio::io_context io;
    asio::co_spawn(io, alone(pair, returned), asio::detached);
    io.poll();
  }
  BOOST_TEST(returned == 0);
  std::vector<float> b(1000, 2.0f);
  BOOST_TEST(!pair.all_reduce_directly(1, b).has_value());
}

task<void> destroy_here(std::unique_ptr<asio::io_context> io, std::unique_ptr<std::vector<float>> buffer) {
  const environment& here = co_await this_environment{};
  static_cast<void>(here);
  io.reset();
  buffer.reset();
}

BOOST_AUTO_TEST_CASE(a_context_destroyed_on_the_engine_itself) {
  choir pair;
  watched op;
  auto io = std::make_unique<asio::io_context>();
  auto buffer = std::make_unique<std::vector<float>>(1000, 1.0f);
  pair.all_reduce(0, *buffer, asio::bind_executor(*io, op.handler()));
  pair.thread().run(destroy_here(std::move(io), std::move(buffer)));
  BOOST_TEST(op.called == 0);
  BOOST_TEST(op.handlers() == 0);
  std::vector<float> b(1000, 2.0f);
  BOOST_TEST(!pair.all_reduce_directly(1, b).has_value());
}

BOOST_AUTO_TEST_CASE(a_stopped_executor_keeps_the_handler_until_it_goes) {
  choir pair;
  watched op;
  {
    asio::io_context io;
    io.stop();
    std::vector<float> a(10, 1.0f);
    std::vector<float> b(10, 2.0f);
    pair.all_reduce(0, a, asio::bind_executor(io, op.handler()));
    BOOST_TEST(pair.all_reduce_directly(1, b).has_value());
    io.run();
    BOOST_TEST(op.called == 0);
    BOOST_TEST(op.handlers() == 1);
    BOOST_TEST(b == std::vector<float>(10, 3.0f));
  }
  BOOST_TEST(op.called == 0);
  BOOST_TEST(op.handlers() == 0);
}

BOOST_AUTO_TEST_CASE(after_a_deadline_nothing_is_read_or_written) {
  for (const std::size_t count : {10u, 500'000u}) {
    choir pair;
    asio::io_context io;
    watched op;
    auto buffer = std::make_unique<std::vector<float>>(count, 1.0f);
    pair.all_reduce(0, *buffer, asio::bind_executor(io, op.handler()), deadline{2ms});
    io.run();
    BOOST_TEST(op.called == 1);
    BOOST_TEST((op.outcome == errc::timed_out));
    buffer.reset();
    std::vector<float> b(count, 2.0f);
    BOOST_TEST(!pair.all_reduce_directly(1, b).has_value());
    BOOST_TEST(b.front() == 2.0f);
  }
}

// The communicator's own methods, in a job of one.

task<std::unique_ptr<communicator>> join_alone() {
  task<communicator> joining = communicator::join();
  communicator joined = co_await std::move(joining);
  co_return std::make_unique<communicator>(std::move(joined));
}
task<void> leave(std::unique_ptr<communicator>& comm) {
  const environment& here = co_await this_environment{};
  static_cast<void>(here);
  comm.reset();
}

asio::awaitable<void> serve(communicator& comm, int& done) {
  std::vector<float> grad(100, 2.0f);
  co_await comm.all_reduce(grad, sum, asio::use_awaitable);
  co_await comm.all_reduce(grad, sum, deadline{10s}, asio::use_awaitable);
  co_await comm.barrier(asio::use_awaitable);
  if (grad.front() == 2.0f) ++done;
}

BOOST_AUTO_TEST_CASE(communicators_take_tokens) {
  engine_thread thread;
  std::unique_ptr<communicator> comm = thread.run(join_alone());
  asio::io_context io;
  int done = 0;
  asio::co_spawn(io, serve(*comm, done), asio::detached);
  io.run();
  BOOST_TEST(done == 1);
  std::vector<float> grad(7, 1.0f);
  comm->all_reduce(grad, sum, asio::use_future).get();
  thread.run(leave(comm));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale
