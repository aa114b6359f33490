#include <chorale/async/engine.hpp>
#include <chorale/async/io.hpp>
#include <chorale/transport/socket.hpp>

#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace chorale {
namespace {

BOOST_AUTO_TEST_SUITE(sockets)

BOOST_AUTO_TEST_CASE(addresses_survive_their_text) {
  for (const char* text :
       {"10.0.0.1:7000", "[fd00::1]:7000", "unix:@a-name", "unix:/tmp/a path", "127.0.0.1:0"}) {
    const auto parsed = address::parse(text);
    BOOST_TEST_REQUIRE(parsed.has_value());
    BOOST_TEST(parsed->text() == text);
  }
}

BOOST_AUTO_TEST_CASE(what_is_no_address_says_why) {
  for (const char* text : {"", "10.0.0.1", ":7000", "10.0.0.1:", "10.0.0.1:70000", "10.0.0.1:7x",
                           "fd00::1:7000", "unix:", "unix:@"}) {
    const auto parsed = address::parse(text);
    BOOST_TEST(!parsed.has_value(), text);
    if (!parsed) BOOST_TEST((parsed.error().code() == errc::invalid_argument));
  }
  BOOST_TEST(!address::parse("unix:@" + std::string(200, 'x')).has_value());
}

BOOST_AUTO_TEST_CASE(local_means_not_reachable_from_elsewhere) {
  BOOST_TEST(address::parse("127.3.2.1:1")->is_local());
  BOOST_TEST(address::parse("[::1]:1")->is_local());
  BOOST_TEST(address::unix_abstract("x").is_local());
  BOOST_TEST(!address::parse("10.0.0.1:1")->is_local());
  BOOST_TEST(!address::parse("0.0.0.0:1")->is_local());
  BOOST_TEST(address::parse("0.0.0.0:1")->is_wildcard());
  BOOST_TEST(address::parse("[::]:1")->is_wildcard());
}

BOOST_AUTO_TEST_CASE(interface_filters) {
  const interface_filter usual{""};
  BOOST_TEST(usual.allows("eth0"));
  BOOST_TEST(!usual.allows("lo"));
  BOOST_TEST(!usual.allows("docker0"));
  const interface_filter some{"eth,ib"};
  BOOST_TEST(some.allows("eth1"));
  BOOST_TEST(some.allows("ib0"));
  BOOST_TEST(!some.allows("wlan0"));
  const interface_filter exactly{"=eth1"};
  BOOST_TEST(exactly.allows("eth1"));
  BOOST_TEST(!exactly.allows("eth10"));
  const interface_filter others{"^eth"};
  BOOST_TEST(!others.allows("eth0"));
  BOOST_TEST(others.allows("lo"));
}

BOOST_AUTO_TEST_CASE(listening_on_a_taken_address_names_it) {
  const auto first = listen_on(address::loopback(0));
  BOOST_TEST_REQUIRE(first.has_value());
  const auto second = listen_on(local_address(first->get()));
  BOOST_TEST_REQUIRE(!second.has_value());
  BOOST_TEST((second.error().message().find(local_address(first->get()).text()) != std::string::npos));
}

struct unix_pair {
  unix_pair() {
    std::array<int, 2> fds{};
    BOOST_TEST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) == 0);
    a.reset(fds[0]);
    b.reset(fds[1]);
  }
  unique_fd a, b;
};

task<result<void>> pass(int from, std::span<const std::byte> bytes, std::span<const int> fds) {
  task<result<void>> sending = send_fds(from, bytes, fds);
  auto sent = co_await std::move(sending);
  co_return sent;
}

BOOST_AUTO_TEST_CASE(descriptors_travel_with_their_bytes) {
  unix_pair pair;
  engine loop;
  const unique_fd memory{::memfd_create("test", MFD_CLOEXEC)};
  BOOST_TEST_REQUIRE(::pwrite(memory.get(), "hello", 5, 0) == 5);
  const std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  const std::array<int, 2> fds{memory.get(), memory.get()};
  BOOST_TEST_REQUIRE(loop.run(pass(pair.a.get(), bytes, fds)).has_value());

  std::array<std::byte, 3> got{};
  auto received = loop.run(recv_fds(pair.b.get(), got));
  BOOST_TEST_REQUIRE(received.has_value());
  BOOST_TEST((got == bytes));
  BOOST_TEST_REQUIRE(received->size() == 2U);
  std::array<char, 5> text{};
  BOOST_TEST(::pread((*received)[1].get(), text.data(), text.size(), 0) == 5);
  BOOST_TEST((std::string_view{text.data(), 5} == "hello"));
  BOOST_TEST((::fcntl((*received)[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
}

BOOST_AUTO_TEST_CASE(a_closed_peer_ends_the_wait_for_descriptors) {
  unix_pair pair;
  pair.a.reset();
  engine loop;
  std::array<std::byte, 1> got{};
  const auto received = loop.run(recv_fds(pair.b.get(), got));
  BOOST_TEST_REQUIRE(!received.has_value());
  BOOST_TEST((received.error().code() == errc::link_lost));
}

BOOST_AUTO_TEST_CASE(too_many_descriptors_are_refused) {
  unix_pair pair;
  engine loop;
  const std::array<std::byte, 1> bytes{};
  const std::vector<int> fds(max_fds_per_message + 1, pair.a.get());
  const auto sent = loop.run(pass(pair.a.get(), bytes, fds));
  BOOST_TEST_REQUIRE(!sent.has_value());
  BOOST_TEST((sent.error().code() == errc::invalid_argument));
}

BOOST_AUTO_TEST_CASE(the_other_end_is_known) {
  const unix_pair pair;
  const auto who = credentials_of(pair.a.get());
  BOOST_TEST_REQUIRE(who.has_value());
  BOOST_TEST(who->pid == ::getpid());
  BOOST_TEST(who->uid == ::geteuid());
  BOOST_TEST(bool(process_of(pair.a.get(), *who)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale
