// What strangers, hostile peers and deaths do to an endpoint: nothing to anybody else, and nothing that
// stays.
#include "endpoint_rig.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <random>

namespace {

using namespace chorale;
using namespace chorale::testing;
using endpoints::frame_header;
using endpoints::frame_kind;
namespace data = boost::unit_test::data;

const auto everywhere = places();

std::size_t open_files() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) ++count;
  return count;
}

task<unique_fd> knock(std::string where) {
  const auto target = address::parse(where).value();
  unique_fd fd = open_stream(target).value();
  auto connected = co_await connect_to(fd.get(), target.data(), target.size());
  static_cast<void>(connected.value());
  co_return fd;
}

task<void> echo_any(listener& service) {
  for (;;) {
    task<peer_request> next = service.next_request();
    peer_request request = co_await std::move(next);
    // Whoever asked may be gone by now.
    error gone = co_await error_of(request.reply(request.message().bytes()));
    static_cast<void>(gone);
  }
}

task<void> expect_echo(peer_handle peer) {
  peer_message m = co_await peer.call(1, std::string_view{"still here"});
  if (m.text() != "still here") throw std::runtime_error{"a wrong echo"};
}

task<void> stop_and_join(scope& work) {
  work.request_stop();
  try {
    co_await work.join();
  } catch (const failure& f) {
    if (f.why() != errc::cancelled) throw;
  }
}

task<void> strangers(carrier over) {
  endpoint_options quick = named("far");
  quick.hello_limit = 150ms;
  task<listener> opening = listen(free_address(over), quick);
  listener service = co_await std::move(opening);
  const environment& here = co_await this_environment{};
  scope serving{here};
  serving.spawn(echo_any(service));
  peer_handle good = co_await connect(service.where(), named("good"));
  co_await expect_echo(good);
  const std::size_t before = open_files();
  std::vector<unique_fd> bad;
  std::mt19937_64 random{11};
  for (int i = 0; i < 60; ++i) {
    task<unique_fd> knocking = knock(service.where());
    bad.push_back(co_await std::move(knocking));
    std::vector<std::byte> noise(i % 3 == 0 ? 0 : i % 3 == 1 ? 30 : 500);  // silence, half a hello, garbage
    for (auto& b : noise) b = static_cast<std::byte>(random());
    if (i % 3 == 1) noise[0] = std::byte{'C'};
    if (!noise.empty()) co_await send_raw(bad.back().get(), noise);
    if (i % 4 == 1) ::shutdown(bad.back().get(), SHUT_WR);
  }
  co_await expect_echo(good);
  peer_handle late = co_await connect(service.where(), named("late"));
  co_await expect_echo(late);
  co_await late.close();
  while (service.strangers() != 60) co_await sleep_for(5ms);
  BOOST_TEST(service.peers() <= 2U);
  // Ours are still open: theirs are gone, though nobody hung up.
  while (service.peers() != 1) co_await sleep_for(1ms);
  late = {};
  while (open_files() != before + bad.size()) co_await sleep_for(1ms);
  co_await expect_echo(good);
  co_await stop_and_join(serving);
}

/// Each is said after a hello that was in order.
struct misdeed {
  const char* what;
  std::vector<std::byte> bytes;
};

std::vector<misdeed> misdeeds() {
  const std::uint64_t limit = short_options().byte_limit;
  std::vector<misdeed> all;
  all.push_back({"an unknown kind", bytes_of({.kind = static_cast<frame_kind>(99)})});
  all.push_back({"another version", bytes_of({.kind = frame_kind::message, .version = 9})});
  all.push_back({"a second opening", bytes_of({.kind = frame_kind::open, .tag = limit})});
  all.push_back({"more than the window", bytes_of({.kind = frame_kind::message, .size = limit})});
  all.push_back({"2^64 - 1 bytes", bytes_of({.kind = frame_kind::message, .size = ~std::uint64_t{0}})});
  all.push_back({"a reply of 2^63 bytes",
                 bytes_of({.kind = frame_kind::reply, .size = std::uint64_t{1} << 63, .id = 1})});
  all.push_back(
      {"too many dimensions", bytes_of({.kind = frame_kind::message, .element = 9, .dimensions = 9})});
  all.push_back({"a shape of nothing", bytes_of({.kind = frame_kind::message, .dimensions = 1})});
  all.push_back({"an unknown type", bytes_of({.kind = frame_kind::message, .element = 200, .size = 8}, 8)});
  all.push_back({"a shape that is wrong",
                 bytes_of({.kind = frame_kind::message, .element = 9, .dimensions = 1, .size = 8}, 16)});
  all.push_back({"a shape that overflows",
                 bytes_of({.kind = frame_kind::message, .element = 9, .dimensions = 8, .size = 8}, 72)});
  all.push_back({"credit for nothing", bytes_of({.kind = frame_kind::credit})});
  all.push_back({"credit never used", bytes_of({.kind = frame_kind::credit, .tag = 1})});
  all.push_back(
      {"credit that wraps", bytes_of({.kind = frame_kind::credit, .tag = ~std::uint64_t{0}, .id = 1})});
  all.push_back({"a request without number", bytes_of({.kind = frame_kind::request})});
  all.push_back({"a goodbye with a body", bytes_of({.kind = frame_kind::bye, .size = 4}, 4)});
  all.push_back({"a long refusal", bytes_of({.kind = frame_kind::refusal, .head = 60000, .id = 1})});
  std::vector<std::byte> many;
  for (int i = 0; i < 6000; ++i) {  // each empty, together beyond the window
    const auto one = bytes_of({.kind = frame_kind::message});
    many.insert(many.end(), one.begin(), one.end());
  }
  all.push_back({"thousands of empty messages", std::move(many)});
  return all;
}

task<void> hostile(carrier over) {
  task<listener> opening = listen(free_address(over), named("far"));
  listener service = co_await std::move(opening);
  peer_handle good = co_await connect(service.where(), named("good"));
  peer_handle good_far = co_await service.accept();
  for (const misdeed& m : misdeeds()) {
    task<unique_fd> greeting = raw_peer(service.where(), named("bad"));
    const unique_fd fd = co_await std::move(greeting);
    peer_handle seen = co_await service.accept();
    co_await send_raw(fd.get(), m.bytes);
    task<error> ending = with_timeout(5s, seen.ended());
    error e = co_await std::move(ending);
    BOOST_TEST((e == errc::protocol_error), m.what << ": " << e.message());
    BOOST_TEST(e.message().find("bad") != std::string::npos, e.message());
    // The connection is closed: what it said comes first, then the end.
    std::array<std::byte, 4096> rest{};
    for (bool more = true; more;) {
      auto got = co_await recv_some(fd.get(), rest.data(), rest.size());
      more = got && *got != 0;
    }
  }
  BOOST_TEST(service.peers() == 1U);
  co_await good.send(1, std::string_view{"fine"});
  peer_message fine = co_await good_far.recv();
  BOOST_TEST(fine.text() == "fine");
}

/// Random headers and bodies: whatever comes of it, the listener and its good peer go on.
task<void> fuzz(carrier over, std::uint64_t seed) {
  task<listener> opening = listen(free_address(over), named("far"));
  listener service = co_await std::move(opening);
  const environment& here = co_await this_environment{};
  scope serving{here};
  serving.spawn(echo_any(service));
  peer_handle good = co_await connect(service.where(), named("good"));
  std::mt19937_64 random{seed};
  const auto small = [&](std::uint64_t below) { return random() % below; };
  for (int round = 0; round < 60; ++round) {
    task<unique_fd> greeting = raw_peer(service.where(), named("bad"));
    const unique_fd fd = co_await std::move(greeting);
    for (std::uint64_t frames = 1 + small(8); frames != 0; --frames) {
      frame_header h;
      h.kind = static_cast<frame_kind>(small(9));
      h.element = static_cast<std::uint8_t>(small(3) == 0 ? small(256) : 0);
      h.dimensions = static_cast<std::uint8_t>(h.element != 0 ? small(3) : 0);
      h.head = static_cast<std::uint16_t>(small(40));
      h.code = static_cast<std::uint16_t>(small(100));
      h.size = small(5) == 0 ? random() : small(100);
      h.tag = small(2) == 0 ? random() : small(100);
      h.id = small(20);
      const std::size_t body =
          endpoints::preamble_bytes(h) + static_cast<std::size_t>(std::min<std::uint64_t>(h.size, 100));
      const std::vector<std::byte> bytes = bytes_of(h, body);
      auto sent = co_await send_all(fd.get(), bytes.data(), bytes.size());
      if (!sent) break;
    }
  }
  co_await expect_echo(good);
  while (service.peers() != 1) co_await sleep_for(1ms);
  co_await stop_and_join(serving);
}

/// Connects in a process of its own, says `bytes`, and waits to be killed.
pid_t start_victim(const std::string& where, const std::vector<std::byte>& bytes) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  {
    engine loop{make_epoll_backend().value()};
    loop.run([](std::string to, const std::vector<std::byte>& what) -> task<void> {
      endpoint_options self = named("victim");
      task<unique_fd> greeting = raw_peer(to, self);
      const unique_fd fd = co_await std::move(greeting);
      co_await send_raw(fd.get(), what);
      for (;;) ::pause();
    }(where, bytes));
  }
  ::_exit(1);
}

task<void> killed_mid_message(carrier over) {
  task<listener> opening = listen(free_address(over), named("far"));
  listener service = co_await std::move(opening);
  peer_handle good = co_await connect(service.where(), named("good"));
  peer_handle good_far = co_await service.accept();
  auto words = bytes_of({.kind = frame_kind::message, .size = 3}, 3);
  const auto half = bytes_of({.kind = frame_kind::message, .size = 400'000}, 200'000);
  words.insert(words.end(), half.begin(), half.end());
  const pid_t child = start_victim(service.where(), words);
  task<peer_handle> accepting = service.accept();
  peer_handle victim = co_await std::move(accepting);
  peer_message whole = co_await victim.recv();
  BOOST_TEST(whole.bytes().size() == 3U);
  co_await sleep_for(20ms);
  ::kill(child, SIGKILL);
  error e = co_await error_of(victim.recv());
  BOOST_TEST((e == errc::peer_lost), e.message());
  BOOST_TEST(e.message().find("victim") != std::string::npos, e.message());
  e = co_await error_of(victim.send(1, std::string_view{"anybody there"}));
  BOOST_TEST((e == errc::peer_lost), e.message());
  int status = 0;
  ::waitpid(child, &status, 0);
  co_await good.send(1, std::string_view{"fine"});
  peer_message fine = co_await good_far.recv();
  BOOST_TEST(fine.text() == "fine");
}

/// A peer that reads nothing: the sender's await waits, and ends with the peer or at its deadline.
task<void> never_reads(carrier over) {
  task<listener> opening = listen(free_address(over), named("far"));
  listener service = co_await std::move(opening);
  endpoint_options wide = named("deaf");
  wide.byte_limit = std::size_t{64} << 20;
  task<unique_fd> greeting = raw_peer(service.where(), wide);
  unique_fd fd = co_await std::move(greeting);
  peer_handle deaf = co_await service.accept();
  std::vector<std::byte> big(std::size_t{16} << 20);
  error e = co_await error_of(with_timeout(20ms, deaf.send(1, big)));
  BOOST_TEST((e == errc::timed_out));
  task<error> blocked = error_of(with_timeout(20ms, deaf.call(2, std::string_view{"?"})));
  e = co_await std::move(blocked);
  BOOST_TEST((e == errc::timed_out));
  const environment& here = co_await this_environment{};
  const time_point from = here.loop->now();
  fd.reset();
  e = co_await error_of(deaf.send(3, std::string_view{"?"}));
  BOOST_TEST((e == errc::peer_lost), e.message());
  BOOST_TEST((here.loop->now() - from < 2s));
}

/// A service that says nothing after the connection: the connector's hello has its own limit.
task<void> silent_service(carrier over) {
  const auto where = address::parse(free_address(over)).value();
  const unique_fd mute = listen_on(where).value();
  endpoint_options quick = named("near");
  quick.hello_limit = 50ms;
  error e = co_await error_of(connect(local_address(mute.get()).text(), quick));
  BOOST_TEST((e == errc::timed_out));
  BOOST_TEST(e.message().find("hello") != std::string::npos, e.message());
}

/// Requests that nobody answers, from a peer that reads no refusals, stop at the window.
task<void> drop_all(peer_handle peer, std::uint64_t& dropped) {
  for (;; ++dropped) {
    task<peer_request> next = peer.next_request();
    const peer_request request = co_await std::move(next);
  }
}
task<void> unread_refusals(carrier over) {
  task<listener> opening = listen(free_address(over), named("far"));
  listener service = co_await std::move(opening);
  endpoint_options tight = named("bad");
  tight.byte_limit = endpoints::least_window;
  task<unique_fd> greeting = raw_peer(service.where(), tight);
  const unique_fd fd = co_await std::move(greeting);
  peer_handle bad = co_await service.accept();
  const environment& here = co_await this_environment{};
  scope work{here};
  std::uint64_t dropped = 0;
  work.spawn(drop_all(bad, dropped));
  // As many as the window holds, and then one more, though credit for a few had come back.
  std::vector<std::byte> flood;
  for (std::uint64_t i = 1; i < 20'000; ++i) {
    const auto one = bytes_of({.kind = frame_kind::request, .id = i});
    flood.insert(flood.end(), one.begin(), one.end());
  }
  auto sent = co_await send_all(fd.get(), flood.data(), flood.size());
  static_cast<void>(sent);
  task<error> ending = with_timeout(5s, bad.ended());
  error e = co_await std::move(ending);
  BOOST_TEST((e == errc::protocol_error), e.message());
  BOOST_TEST(dropped <= 2 * short_options().byte_limit / endpoints::frame_overhead);
  try {
    co_await work.join();
  } catch (const failure& f) {
    BOOST_TEST((f.why() == errc::protocol_error));
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(endpoint_faults)

BOOST_DATA_TEST_CASE(strangers_change_nothing_and_keep_nothing, data::make(everywhere), at) {
  run(at.backend, strangers(at.over));
}
BOOST_DATA_TEST_CASE(hostile_bytes_end_their_connection_only, data::make(everywhere), at) {
  run(at.backend, hostile(at.over));
}
BOOST_DATA_TEST_CASE(random_frames_end_at_most_their_connection, data::make(everywhere), at) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    BOOST_TEST_CONTEXT("seed " << seed) { run(at.backend, fuzz(at.over, seed)); }
  }
}
BOOST_DATA_TEST_CASE(a_peer_killed_in_the_middle_of_a_message_is_lost, data::make(everywhere), at) {
  run(at.backend, killed_mid_message(at.over));
}
BOOST_DATA_TEST_CASE(a_peer_that_never_reads_blocks_its_own_sends_only, data::make(everywhere), at) {
  run(at.backend, never_reads(at.over));
}
BOOST_DATA_TEST_CASE(a_silent_service_is_given_up, data::make(everywhere), at) {
  run(at.backend, silent_service(at.over));
}
BOOST_DATA_TEST_CASE(unread_refusals_stop_at_the_window, data::make(everywhere), at) {
  run(at.backend, unread_refusals(at.over));
}

BOOST_AUTO_TEST_SUITE_END()
