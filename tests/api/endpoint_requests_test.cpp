// Requests and answers, and receiving from whichever peer has something, over both transports and backends.
#include "endpoint_rig.hpp"

#include <array>
#include <map>

namespace {

using namespace chorale;
using namespace chorale::testing;
namespace data = boost::unit_test::data;

const auto everywhere = places();

task<void> ask(peer_handle peer, std::uint64_t n, std::uint64_t& right) {
  const std::array<std::uint64_t, 1> question{n};
  peer_message answer = co_await peer.call(9, question);
  if (answer.values<std::uint64_t>()[0] == n * n && answer.tag() == 9) ++right;
}

/// Answers in reverse order, in groups.
task<void> square(peer_handle peer, std::size_t groups, std::size_t group) {
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<peer_request> asked;
    for (std::size_t i = 0; i < group; ++i) {
      task<peer_request> next = peer.next_request();
      asked.push_back(co_await std::move(next));
    }
    while (!asked.empty()) {
      const std::uint64_t n = asked.back().message().values<std::uint64_t>()[0];
      const std::array<std::uint64_t, 1> answer{n * n};
      co_await asked.back().reply(answer);
      asked.pop_back();
    }
  }
}

task<void> many_in_flight(carrier over) {
  task<pair_of_peers> meeting = meet(over);
  pair_of_peers p = co_await std::move(meeting);
  std::uint64_t right = 0;
  const environment& here = co_await this_environment{};
  scope work{here};
  work.spawn(square(p.far, 20, 25));
  for (std::uint64_t i = 0; i < 500; ++i) work.spawn(ask(p.near, i, right));
  co_await work.join();
  BOOST_TEST(right == 500U);
}

task<void> drop_one(peer_handle peer) {
  task<peer_request> next = peer.next_request();
  const peer_request dropped = co_await std::move(next);
  BOOST_TEST(dropped.from().name() == "near");
}
task<void> refuse_one(peer_handle peer) {
  task<peer_request> next = peer.next_request();
  peer_request request = co_await std::move(next);
  request.refuse(error{errc::unsupported, "no such table"});
  error e = co_await error_of(request.reply(std::string_view{"after all"}));
  BOOST_TEST((e == errc::invalid_state));
}
task<void> unanswered(carrier over) {
  task<pair_of_peers> meeting = meet(over);
  pair_of_peers p = co_await std::move(meeting);
  const environment& here = co_await this_environment{};
  scope work{here};
  work.spawn(drop_one(p.far));
  error e = co_await error_of(p.near.call(1, std::string_view{"?"}));
  BOOST_TEST((e == errc::dropped));
  BOOST_TEST(e.message().find("far") != std::string::npos, e.message());
  work.spawn(refuse_one(p.far));
  e = co_await error_of(p.near.call(1, std::string_view{"?"}));
  BOOST_TEST((e == errc::unsupported));
  BOOST_TEST(e.message().find("no such table") != std::string::npos, e.message());
  co_await work.join();
}

/// Calls that gave up leave nothing behind: their answers are thrown away and their window comes back.
task<void> late_answers(carrier over) {
  task<pair_of_peers> meeting = meet(over);
  pair_of_peers p = co_await std::move(meeting);
  std::vector<std::byte> big(300'000);
  for (int i = 0; i < 20; ++i) {
    error e = co_await error_of(with_timeout(1ms, p.near.call(1, big)));
    BOOST_TEST((e == errc::timed_out));
    task<peer_request> next = p.far.next_request();
    peer_request request = co_await std::move(next);
    co_await request.reply(big);
  }
  std::uint64_t right = 0;
  const environment& here = co_await this_environment{};
  scope work{here};
  work.spawn(square(p.far, 1, 1));
  work.spawn(ask(p.near, 12, right));
  co_await work.join();
  BOOST_TEST(right == 1U);
}

constexpr std::size_t flood_bytes = 50'000;
task<void> flood(peer_handle peer, std::uint64_t& sent) {
  std::vector<std::byte> body(flood_bytes);
  for (std::uint64_t i = 0;; ++i, ++sent) co_await peer.send(i, body);
}

/// Unread messages of one peer keep neither its answers away nor its own requests from being answered.
task<void> answers_pass_messages(carrier over) {
  task<pair_of_peers> meeting = meet(over);
  pair_of_peers p = co_await std::move(meeting);
  const environment& here = co_await this_environment{};
  scope work{here};
  std::uint64_t sent = 0;
  work.spawn(flood(p.far, sent));  // nobody receives these
  const std::uint64_t stuck = short_options().byte_limit / (flood_bytes + endpoints::frame_overhead);
  while (sent < stuck) co_await sleep_for(1ms);
  scope calls{here};
  calls.spawn(square(p.far, 1, 1));
  std::uint64_t right = 0;
  calls.spawn(ask(p.near, 5, right));
  co_await calls.join();
  BOOST_TEST(right == 1U);
  BOOST_TEST(sent == stuck);
  work.request_stop();
  task<error> stopped = error_of([](scope& s) -> task<void> { co_await s.join(); }(work));
  error e = co_await std::move(stopped);
  BOOST_TEST((e == errc::cancelled));
}

task<void> send_some_of(std::string where, std::string name, std::uint64_t count, bool stay,
                        event& all_read) {
  task<peer_handle> connecting = connect(where, named(name));
  peer_handle peer = co_await std::move(connecting);
  const std::string body(1000, 'x');
  for (std::uint64_t i = 0; i < count; ++i) co_await peer.send(i, body);
  if (stay) {
    event::waiter read = all_read.wait();
    co_await read;
  }
}

task<void> any_source(carrier over) {
  task<listener> opening = listen(free_address(over), named("hub"));
  listener service = co_await std::move(opening);
  const environment& here = co_await this_environment{};
  scope senders{here};
  event all_read;
  // One sends as much as it can; the others little. Some leave at once, unread and not accepted.
  senders.spawn(send_some_of(service.where(), "loud", 2000, true, all_read));
  for (int i = 0; i < 8; ++i)
    senders.spawn(send_some_of(service.where(), "quiet" + std::to_string(i), 10, i % 2 == 0, all_read));
  co_await sleep_for(50ms);
  std::map<std::string, std::uint64_t> next;
  std::uint64_t received = 0;
  std::uint64_t quiet_done_at = 0;
  while (received < 2080) {
    task<arrival> coming = service.recv_any();
    arrival got = co_await std::move(coming);
    ++received;
    std::uint64_t& expected = next[got.from.name()];
    if (got.message.tag() != expected++) throw std::runtime_error{"messages of one peer changed places"};
    std::uint64_t quiet = 0;
    for (const auto& [name, count] : next) quiet += name == "loud" ? 0 : count;
    if (quiet == 80 && quiet_done_at == 0) quiet_done_at = received;
  }
  BOOST_TEST(next["loud"] == 2000U);
  // In turn: nine peers, ten messages each, before the loud one gets more than its share.
  BOOST_TEST(quiet_done_at <= 100U);
  all_read.set();
  co_await senders.join();
  while (service.peers() != 0) co_await sleep_for(1ms);
}

task<void> call_and_leave(std::string where, std::uint64_t n, std::uint64_t& right) {
  task<peer_handle> connecting = connect(where, named("caller"));
  peer_handle peer = co_await std::move(connecting);
  co_await ask(peer, n, right);
  co_await peer.close();
}
task<void> answer_any(listener& service, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    task<peer_request> next = service.next_request();
    peer_request request = co_await std::move(next);
    const std::uint64_t n = request.message().values<std::uint64_t>()[0];
    const std::array<std::uint64_t, 1> answer{n * n};
    co_await request.reply(answer);
  }
}
task<void> requests_of_any(carrier over) {
  task<listener> opening = listen(free_address(over), named("hub"));
  listener service = co_await std::move(opening);
  const environment& here = co_await this_environment{};
  scope work{here};
  std::uint64_t right = 0;
  work.spawn(answer_any(service, 40));
  for (std::uint64_t i = 0; i < 40; ++i) work.spawn(call_and_leave(service.where(), i, right));
  co_await work.join();
  BOOST_TEST(right == 40U);
  error e = co_await error_of(with_timeout(5ms, service.next_request()));
  BOOST_TEST((e == errc::timed_out));
  e = co_await error_of(with_timeout(5ms, service.recv_any()));
  BOOST_TEST((e == errc::timed_out));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(endpoint_requests)

BOOST_DATA_TEST_CASE(hundreds_in_flight_answered_in_any_order, data::make(everywhere), at) {
  run(at.backend, many_in_flight(at.over));
}
BOOST_DATA_TEST_CASE(dropped_and_refused_requests_tell_the_caller, data::make(everywhere), at) {
  run(at.backend, unanswered(at.over));
}
BOOST_DATA_TEST_CASE(answers_to_calls_that_gave_up_are_thrown_away, data::make(everywhere), at) {
  run(at.backend, late_answers(at.over));
}
BOOST_DATA_TEST_CASE(answers_pass_unread_messages, data::make(everywhere), at) {
  run(at.backend, answers_pass_messages(at.over));
}
BOOST_DATA_TEST_CASE(any_source_takes_one_peer_after_the_other, data::make(everywhere), at) {
  run(at.backend, any_source(at.over));
}
BOOST_DATA_TEST_CASE(requests_of_peers_that_come_and_go, data::make(everywhere), at) {
  run(at.backend, requests_of_any(at.over));
}

BOOST_AUTO_TEST_SUITE_END()
