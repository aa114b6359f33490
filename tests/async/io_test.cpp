// Awaiting the kernel from coroutines, over each backend.
#include "allocation_counter.hpp"
#include "rig.hpp"
#include <chorale/async/io.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/when.hpp>
#include <chorale/async/with_environment.hpp>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <netinet/in.h>
#include <poll.h>

#include <random>

namespace {

using namespace chorale;
using namespace chorale::testing;
namespace data = boost::unit_test::data;

const auto backends = available_backends();

struct world {
  explicit world(candidate c) : loop{make(c).value()} {}
  engine loop;
};

task<> echo(int fd, int rounds) {
  char byte = 0;
  for (int i = 0; i < rounds; ++i) {
    auto got = co_await recv_some(fd, &byte, 1);
    static_cast<void>(got.value());
    auto sent = co_await send_some(fd, &byte, 1);
    static_cast<void>(sent.value());
  }
}

task<int> ask(int fd, int rounds) {
  int right = 0;
  for (int i = 0; i < rounds; ++i) {
    char byte = static_cast<char>(i);
    auto sent = co_await send_some(fd, &byte, 1);
    static_cast<void>(sent.value());
    byte = 0;
    auto got = co_await recv_some(fd, &byte, 1);
    static_cast<void>(got.value());
    if (byte == static_cast<char>(i)) ++right;
  }
  co_return right;
}

BOOST_AUTO_TEST_SUITE(awaiting_the_kernel)

BOOST_DATA_TEST_CASE(ping_pong, data::make(backends), which) {
  world w{which};
  socket_pair ends;
  const auto got = w.loop.run(when_all(ask(ends.a, 1000), echo(ends.b, 1000)));
  BOOST_TEST(std::get<0>(got) == 1000);
}

task<std::uint64_t> allocations_of(int a, int b) {
  task<int> warm_up = ask(a, 50);
  task<> warm_echo = echo(b, 50);
  co_await when_all(std::move(warm_up), std::move(warm_echo));
  task<int> questions = ask(a, 500);
  task<> answers = echo(b, 500);
  const std::uint64_t before = heap_allocations();
  co_await when_all(std::move(questions), std::move(answers));
  co_return heap_allocations() - before;
}

BOOST_DATA_TEST_CASE(a_round_trip_allocates_nothing, data::make(backends), which) {
  world w{which};
  socket_pair ends;
  BOOST_TEST(w.loop.run(allocations_of(ends.a, ends.b)) == 0U);
}

task<bool> transfer(int a, int b, std::size_t size) {
  std::vector<char> sent(size);
  std::mt19937 random{7};
  for (char& byte : sent) byte = static_cast<char>(random());
  std::vector<char> got(size);
  task<result<void>> sending = send_all(a, sent.data(), size);
  task<result<void>> receiving = recv_all(b, got.data(), size);
  auto both = co_await when_all(std::move(sending), std::move(receiving));
  std::get<0>(both).value();
  std::get<1>(both).value();
  co_return sent == got;
}

BOOST_DATA_TEST_CASE(send_all_and_recv_all_move_it_all, data::make(backends), which) {
  world w{which};
  socket_pair ends;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{3U << 20}})
    BOOST_TEST(w.loop.run(transfer(ends.a, ends.b, size)));
}

task<errc> receive_code(int fd) {
  char byte = 0;
  auto got = co_await recv_some(fd, &byte, 1);
  co_return got ? errc::ok : got.error().code();
}

BOOST_DATA_TEST_CASE(a_deadline_ends_a_receive, data::make(backends), which) {
  world w{which};
  socket_pair ends;
  const time_point begun = steady_now();
  const errc code = w.loop.run(with_timeout(10ms, receive_code(ends.a)));
  BOOST_TEST((code == errc::timed_out));
  BOOST_TEST((steady_now() - begun >= 10ms));
  BOOST_TEST(w.loop.io().outstanding() == 0U);
}

BOOST_DATA_TEST_CASE(a_passed_deadline_submits_nothing, data::make(backends), which) {
  world w{which};
  socket_pair ends;
  BOOST_TEST((w.loop.run(with_deadline(steady_now() - 1s, receive_code(ends.a))) == errc::timed_out));
}

BOOST_DATA_TEST_CASE(the_loser_of_a_race_gives_its_buffer_back, data::make(backends), which) {
  world w{which};
  socket_pair quiet;
  socket_pair talking;
  BOOST_REQUIRE_EQUAL(::write(talking.b, "x", 1), 1);
  const auto ended = w.loop.run(when_any(receive_code(quiet.a), receive_code(talking.a)));
  BOOST_TEST(ended.first == 1U);
  BOOST_TEST((*std::get<1>(ended.outcomes) == errc::ok));
  BOOST_TEST((*std::get<0>(ended.outcomes) == errc::cancelled));
  // What comes later stays in the socket.
  BOOST_REQUIRE_EQUAL(::write(quiet.b, "y", 1), 1);
  BOOST_TEST((w.loop.run(receive_code(quiet.a)) == errc::ok));
}

task<bool> receive_or_time_out(int fd, duration patience) {
  task<errc> receiving = receive_code(fd);
  const errc code = co_await with_timeout(patience, std::move(receiving));
  co_return code == errc::ok;
}

// The byte and the deadline race: if the receive reports a timeout, the byte must still be in the socket.
BOOST_DATA_TEST_CASE(no_byte_is_lost_between_completion_and_stop, data::make(backends), which) {
  world w{which};
  const unsigned seed = std::random_device{}();
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937 random{seed};
  int won = 0;
  for (int round = 0; round < 200; ++round) {
    socket_pair ends;
    if (random() % 2 == 0) BOOST_REQUIRE_EQUAL(::write(ends.b, "x", 1), 1);
    const duration patience{static_cast<long>(random() % 20'000)};
    const bool got = w.loop.run(receive_or_time_out(ends.a, patience));
    won += got ? 1 : 0;
    char byte = 0;
    const bool left = ::recv(ends.a, &byte, 1, MSG_DONTWAIT) == 1;
    BOOST_REQUIRE(!(got && left));
  }
  BOOST_TEST_MESSAGE(won << " of 200 received in time");
}

task<std::string> failing_connect() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  const file owned{fd};
  sockaddr_in nobody{};
  nobody.sin_family = AF_INET;
  nobody.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  nobody.sin_port = htons(1);
  auto connected = co_await connect_to(fd, reinterpret_cast<const sockaddr*>(&nobody), sizeof nobody);
  co_return connected ? "connected" : connected.error().message();
}

BOOST_DATA_TEST_CASE(an_error_names_the_call, data::make(backends), which) {
  world w{which};
  const std::string text = w.loop.run(failing_connect());
  BOOST_TEST(text.find("connect") != std::string::npos, text);
  BOOST_TEST(text.find("refused") != std::string::npos, text);
}

task<std::size_t> wait_readable(int fd) {
  auto ready = co_await poll_fd(fd, POLLIN);
  co_return ready.value();
}

task<> write_after(int fd, duration in) {
  co_await sleep_for(in);
  auto sent = co_await send_some(fd, "x", 1);
  static_cast<void>(sent.value());
}

BOOST_DATA_TEST_CASE(poll_waits_for_readiness, data::make(backends), which) {
  world w{which};
  socket_pair ends;
  const auto got = w.loop.run(when_all(wait_readable(ends.a), write_after(ends.b, 1ms)));
  BOOST_TEST(std::get<0>(got) == static_cast<std::size_t>(POLLIN));
}

task<errc> closed_early(int fd) {
  char bytes[8];
  auto got = co_await recv_all(fd, bytes, sizeof bytes);
  co_return got ? errc::ok : got.error().code();
}

BOOST_DATA_TEST_CASE(a_connection_closed_half_way_is_a_lost_link, data::make(backends), which) {
  world w{which};
  socket_pair ends;
  BOOST_REQUIRE_EQUAL(::write(ends.b, "half", 4), 4);
  ends.b.close();
  BOOST_TEST((w.loop.run(closed_early(ends.a)) == errc::link_lost));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
