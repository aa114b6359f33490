// Tasks of chorale that await operations of Asio, and coroutines of Asio that await tasks of chorale.
#include "choir.hpp"
#include <chorale/async/as_result.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/with_environment.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace chorale {
namespace {

using namespace std::chrono_literals;
using local_socket = asio::local::stream_protocol::socket;

/// An io_context that a thread of its own runs, and an engine with another.
class two_worlds {
 public:
  two_worlds() : guard_{io.get_executor()}, runner_{[this] { io.run(); }} {}
  ~two_worlds() {
    guard_.reset();
    runner_.join();
  }
  asio::io_context io;
  engine_thread thread;

 private:
  asio::executor_work_guard<asio::io_context::executor_type> guard_;
  std::thread runner_;
};

struct socket_pair {
  explicit socket_pair(asio::io_context& io) : near{io}, far{io} { asio::local::connect_pair(near, far); }
  local_socket near;
  local_socket far;
};

BOOST_AUTO_TEST_SUITE(asio_in_tasks)

task<bool> wait_for_timer(asio::io_context& io, engine& home) {
  asio::steady_timer timer{io};
  timer.expires_after(1ms);
  co_await timer.async_wait(use_task);
  co_return home.in_loop();
}

BOOST_AUTO_TEST_CASE(a_timer_and_home_again) {
  two_worlds both;
  for (int i = 0; i < 20; ++i) BOOST_TEST(both.thread.run(wait_for_timer(both.io, both.thread.loop())));
}

task<std::string> read_all(local_socket& from, std::size_t count) {
  std::string text(count, ' ');
  const std::size_t got = co_await asio::async_read(from, asio::buffer(text), use_task);
  text.resize(got);
  co_return text;
}
task<void> write_slowly(local_socket& to, std::string text) {
  for (char& c : text) {
    const std::size_t put = co_await asio::async_write(to, asio::buffer(&c, 1), use_task);
    if (put != 1) throw std::runtime_error{"a short write"};
  }
}
task<std::string> talk(asio::io_context& io) {
  const environment& here = co_await this_environment{};
  socket_pair pair{io};
  scope writers{here};
  writers.spawn(write_slowly(pair.near, "from one task to another"));
  std::string heard = co_await read_all(pair.far, 24);
  co_await writers.join();
  co_return heard;
}

BOOST_AUTO_TEST_CASE(composed_operations_between_tasks) {
  two_worlds both;
  BOOST_TEST(both.thread.run(talk(both.io)) == "from one task to another");
}

/// Asio tells of the end of a stream once; a second read there waits.
task<bool> read_to_the_end(asio::io_context& io) {
  std::array<char, 1> byte{};
  bool ended = false;
  socket_pair first{io}, second{io}, third{io};
  first.near.close();
  second.near.close();
  third.near.close();
  try {
    co_await first.far.async_read_some(asio::buffer(byte), use_task);
  } catch (const asio_system_error& e) {
    ended = e.code() == asio::error::eof;
  }
  auto [code, count] = co_await second.far.async_read_some(asio::buffer(byte), as_tuple(use_task));
  asio_error_code redirected;
  const std::size_t none =
      co_await third.far.async_read_some(asio::buffer(byte), asio::redirect_error(use_task, redirected));
  co_return ended&& code == asio::error::eof&& count == 0 && none == 0 && redirected == code;
}

BOOST_AUTO_TEST_CASE(errors_are_thrown_or_told) {
  two_worlds both;
  BOOST_TEST(both.thread.run(read_to_the_end(both.io)));
}

task<errc> read_for_a_while(asio::io_context& io, duration patience) {
  socket_pair pair{io};
  std::array<char, 1> byte{};
  errc why = errc::ok;
  try {
    co_await with_timeout(patience, pair.far.async_read_some(asio::buffer(byte), use_task));
  } catch (const failure& f) {
    why = f.why().code();
  }
  // Nobody reads there any more.
  co_await asio::async_write(pair.near, asio::buffer("x", 1), use_task);
  co_await pair.far.async_read_some(asio::buffer(byte), use_task);
  co_return byte[0] == 'x' ? why : errc::protocol_error;
}

BOOST_AUTO_TEST_CASE(deadlines_cancel) {
  two_worlds both;
  BOOST_TEST((both.thread.run(read_for_a_while(both.io, 2ms)) == errc::timed_out));
  BOOST_TEST(
      (both.thread.run(read_for_a_while(both.io, duration{-1})) == errc::timed_out));  // before it began
}

task<void> read_for_ever(local_socket& from, errc& why) {
  std::array<char, 1> byte{};
  try {
    co_await asio::async_read(from, asio::buffer(byte), use_task);
  } catch (const failure& f) {
    why = f.why().code();
  }
}
task<errc> stop_a_reader(asio::io_context& io) {
  const environment& here = co_await this_environment{};
  socket_pair pair{io};
  scope readers{here};
  errc why = errc::ok;
  readers.spawn(read_for_ever(pair.far, why));
  co_await sleep_until(here.loop->now() + 1ms);
  readers.request_stop();
  co_await readers.join();
  co_return why;
}

BOOST_AUTO_TEST_CASE(stopped_scopes_cancel) {
  two_worlds both;
  BOOST_TEST((both.thread.run(stop_a_reader(both.io)) == errc::cancelled));
}

/// An operation with any number of results, ended by whom it pleases.
template <class Signature, class Start, class Token>
auto operation(Start start, Token&& token) {
  return asio::async_initiate<Token, Signature>(std::move(start), token);
}

task<bool> odd_operations(asio::io_context& io) {
  auto on_another_thread = [&io](auto handler) {
    auto kept = std::make_shared<decltype(handler)>(std::move(handler));
    asio::post(io, [kept] { (*kept)(7, std::string{"seven"}); });
  };
  std::tuple<int, std::string> two = co_await operation<void(int, std::string)>(on_another_thread, use_task);

  auto given_up = [](auto handler) { auto ends_here = std::move(handler); };
  bool cancelled = false;
  try {
    co_await operation<void(asio_error_code, int)>(given_up, use_task);
  } catch (const failure& f) {
    cancelled = f.why() == errc::cancelled;
  }

  auto thrown = [](auto) { throw std::runtime_error{"no initiation"}; };
  bool caught = false;
  try {
    co_await operation<void(asio_error_code)>(thrown, use_task);
  } catch (const std::runtime_error& e) {
    caught = e.what() == std::string{"no initiation"};
  }

  auto with_exception = [](auto handler) {
    std::move(handler)(std::make_exception_ptr(std::out_of_range{"far"}), std::make_unique<int>(1));
  };
  bool far = false;
  try {
    co_await operation<void(std::exception_ptr, std::unique_ptr<int>)>(with_exception, use_task);
  } catch (const std::out_of_range&) {
    far = true;
  }
  co_return two == std::tuple{7, std::string{"seven"}} && cancelled&& caught&& far;
}

BOOST_AUTO_TEST_CASE(operations_that_end_oddly) {
  two_worlds both;
  BOOST_TEST(both.thread.run(odd_operations(both.io)));
}

task<errc> wait_in(asio::io_context& io, std::promise<void>& waits) {
  auto posted_there = [&](auto handler) {
    auto kept = std::make_shared<decltype(handler)>(std::move(handler));
    asio::post(io, [kept] { (*kept)(); });
    waits.set_value();
  };
  errc why = errc::ok;
  try {
    co_await operation<void()>(posted_there, use_task);
  } catch (const failure& f) {
    why = f.why().code();
  }
  co_return why;
}

BOOST_AUTO_TEST_CASE(a_destroyed_context_ends_the_wait) {
  engine_thread thread;
  auto io = std::make_unique<asio::io_context>();
  std::promise<void> waits;
  auto waiter = std::async(std::launch::async, [&] { return thread.run(wait_in(*io, waits)); });
  waits.get_future().get();
  io.reset();
  BOOST_TEST((waiter.get() == errc::cancelled));
}

asio::awaitable<int> answer(int n) {
  asio::steady_timer timer{co_await asio::this_coro::executor, 1ms};
  co_await timer.async_wait(asio::use_awaitable);
  if (n < 0) throw std::runtime_error{"negative"};
  co_return 2 * n;
}
task<int> ask(asio::io_context& io, int n) {
  const int doubled = co_await asio::co_spawn(io, answer(n), use_task);
  co_return doubled;
}

BOOST_AUTO_TEST_CASE(coroutines_of_asio_are_awaited) {
  two_worlds both;
  BOOST_TEST(both.thread.run(ask(both.io, 21)) == 42);
  BOOST_CHECK_THROW(both.thread.run(ask(both.io, -1)), std::runtime_error);
}

BOOST_AUTO_TEST_CASE(functions_on_the_engine) {
  engine_thread thread;
  std::promise<bool> there;
  asio::post(engine_executor{thread.loop()}, [&] { there.set_value(thread.loop().in_loop()); });
  BOOST_TEST(there.get_future().get());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(tasks_in_asio)

task<int> twice(int n) {
  const environment& here = co_await this_environment{};
  co_await sleep_until(here.loop->now() + 1ms);
  if (n < 0) throw failure{error{errc::peer_lost, "rank three is gone", 3}};
  co_return 2 * n;
}

asio::awaitable<bool> ask_tasks(engine& loop) {
  const int four = co_await spawn_in(loop, twice(2), asio::use_awaitable);
  rank_t culprit = no_rank;
  try {
    co_await spawn_in(loop, twice(-1), asio::use_awaitable);
  } catch (const failure& f) {
    culprit = f.why().culprit();
  }
  auto [failed, none] = co_await spawn_in(loop, twice(-1), as_tuple(asio::use_awaitable));
  co_return four == 4 && culprit == 3 && failed&& none == 0;
}

BOOST_AUTO_TEST_CASE(values_and_exceptions_come_back) {
  engine_thread thread;
  asio::io_context io;
  std::future<bool> right = asio::co_spawn(io, ask_tasks(thread.loop()), asio::use_future);
  io.run();
  BOOST_TEST(right.get());
  BOOST_TEST(spawn_in(thread.loop(), twice(3), asio::use_future).get() == 6);
  auto later = spawn_in(thread.loop(), twice(4), deferred);
  BOOST_TEST(std::move(later)(asio::use_future).get() == 8);
  static_cast<void>(spawn_in(thread.loop(), twice(5), deferred));  // never started
}

struct begun_and_ended {
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
};
task<void> sleep_long(std::shared_ptr<begun_and_ended> counted) {
  const environment& here = co_await this_environment{};
  struct end {
    std::atomic<int>& count;
    ~end() { ++count; }
  } const at_end{counted->ended};
  ++counted->begun;
  co_await sleep_until(here.loop->now() + 1h);
}

BOOST_AUTO_TEST_CASE(cancellation_stops_the_task) {
  engine_thread thread;
  asio::io_context io;
  asio::cancellation_signal signal;
  auto counted = std::make_shared<begun_and_ended>();
  errc why = errc::ok;
  spawn_in(
      thread.loop(), sleep_long(counted),
      asio::bind_cancellation_slot(signal.slot(), asio::bind_executor(io, [&](std::exception_ptr failed) {
                                     try {
                                       std::rethrow_exception(failed);
                                     } catch (const failure& f) {
                                       why = f.why().code();
                                     }
                                   })));
  asio::post(io, [&] { signal.emit(asio::cancellation_type::terminal); });
  io.run();
  BOOST_TEST((why == errc::cancelled));
}

BOOST_AUTO_TEST_CASE(a_destroyed_context_waits_for_the_task) {
  engine_thread thread;
  auto counted = std::make_shared<begun_and_ended>();
  for (int round = 0; round < 50; ++round) {
    asio::io_context io;
    spawn_in(thread.loop(), sleep_long(counted), asio::bind_executor(io, [](std::exception_ptr) {}));
    if (round % 2) thread.run(twice(0));  // begun, or not
  }
  BOOST_TEST(counted->begun >= 25);
  BOOST_TEST(counted->ended == counted->begun);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale
