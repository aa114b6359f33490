// Messages and tensors between two endpoints, over both transports and both backends: what arrives, what
// waits, what is refused.
#include "endpoint_rig.hpp"

#include <array>
#include <filesystem>
#include <numeric>

namespace {

using namespace chorale;
using namespace chorale::testing;
namespace data = boost::unit_test::data;

const auto everywhere = places();

struct stamp {
  std::uint32_t worker;
  std::uint64_t number;
};

task<void> messages_arrive(carrier over) {
  task<pair_of_peers> meeting = meet(over);
  pair_of_peers p = co_await std::move(meeting);
  BOOST_TEST(p.near.name() == "far");
  BOOST_TEST(p.far.name() == "near");
  const stamp head{3, 77};
  co_await p.near.send(1, std::string_view{"hello"});
  co_await p.near.send(2, payload{}.with_head(head));
  co_await p.far.send(3, std::string_view{"back"});
  peer_message first = co_await p.far.recv();
  peer_message second = co_await p.far.recv();
  peer_message back = co_await p.near.recv();
  BOOST_TEST(first.tag() == 1U);
  BOOST_TEST(first.text() == "hello");
  BOOST_TEST((first.type() == dtype::none));
  BOOST_TEST(second.tag() == 2U);
  BOOST_TEST(second.bytes().empty());
  BOOST_TEST(second.head_as<stamp>().number == 77U);
  BOOST_CHECK_THROW((void)second.head_as<int>(), failure);
  BOOST_TEST(back.text() == "back");
}

task<void> tensors_arrive(carrier over) {
  task<pair_of_peers> meeting = meet(over);
  pair_of_peers p = co_await std::move(meeting);
  std::vector<float> sent(6000);
  std::iota(sent.begin(), sent.end(), 0.5F);
  const payload matrix = payload{sent}.shaped({60, 100});
  co_await p.near.send(1, matrix);
  co_await p.near.send(2, matrix);
  co_await p.near.send(3, matrix);

  std::vector<float> room(sent.size());
  received_tensor<float> fits = co_await p.far.recv_tensor<float>(std::span{room});
  BOOST_TEST(fits.in_place);
  BOOST_TEST(fits.values.data() == room.data());
  BOOST_TEST((room == sent));
  BOOST_TEST((std::vector<std::uint64_t>{60, 100} ==
              std::vector<std::uint64_t>(fits.message.shape().begin(), fits.message.shape().end())));

  room.assign(10, -1.0F);
  received_tensor<float> larger = co_await p.far.recv_tensor<float>(std::span{room});
  BOOST_TEST(!larger.in_place);
  BOOST_TEST((std::vector<float>(larger.values.begin(), larger.values.end()) == sent));
  BOOST_TEST(room[0] == -1.0F);

  std::vector<double> wrong(1);
  error e = co_await error_of(p.far.recv_tensor<double>(std::span{wrong}));
  BOOST_TEST((e == errc::mismatch));
  BOOST_TEST(e.message().find("near") != std::string::npos);
  peer_message kept = co_await p.far.recv();
  BOOST_TEST(kept.tag() == 3U);
  BOOST_TEST(kept.values<float>().size() == sent.size());
  BOOST_CHECK_THROW((void)kept.values<int>(), failure);
}

task<void> bad_arguments_are_refused(carrier over) {
  task<pair_of_peers> meeting = meet(over);
  pair_of_peers p = co_await std::move(meeting);
  std::vector<std::byte> big(short_options().byte_limit / 2);
  error e = co_await error_of(p.near.send(1, big));
  BOOST_TEST((e == errc::invalid_argument));
  BOOST_TEST(e.message().find("byte_limit") != std::string::npos, e.message());
  const std::span<const std::byte> most = std::span{big}.first(p.near.largest_message());
  co_await p.near.send(1, most);
  peer_message got = co_await p.far.recv();
  BOOST_TEST(got.bytes().size() == most.size());
  std::vector<float> values(6);
  e = co_await error_of(p.near.send(1, payload{values}.shaped({2, 2})));
  BOOST_TEST((e == errc::invalid_argument));
  e = co_await error_of(p.near.send(1, payload{values}.shaped({6, 1, 1, 1, 1, 1, 1, 1, 1})));
  BOOST_TEST((e == errc::invalid_argument));
  e = co_await error_of(p.near.send(1, payload{std::string_view{"abcd"}}.shaped({4})));
  BOOST_TEST((e == errc::invalid_argument));
  BOOST_CHECK_THROW((void)peer_handle{}.recv(), failure);
}

task<void> send_numbers(peer_handle to, std::uint64_t count, std::size_t size, std::uint64_t& done) {
  std::vector<std::byte> body(size);
  for (std::uint64_t i = 0; i < count; ++i) {
    co_await to.send(i, body);
    ++done;
  }
}

task<void> slow_reader(carrier over) {
  task<pair_of_peers> meeting = meet(over);
  pair_of_peers p = co_await std::move(meeting);
  constexpr std::uint64_t count = 1000;
  constexpr std::size_t size = 10'000;
  std::uint64_t done = 0;
  const environment& here = co_await this_environment{};
  scope sender{here};
  sender.spawn(send_numbers(p.near, count, size, done));
  // Exactly what the receiver allows, however much the sockets hold.
  const std::uint64_t allowed = short_options().byte_limit / (size + endpoints::frame_overhead);
  while (done < allowed) co_await sleep_for(1ms);
  error e = co_await error_of(with_timeout(50ms, p.near.send(5, std::string_view{"waits"})));
  BOOST_TEST((e == errc::timed_out));
  BOOST_TEST(done == allowed);
  BOOST_TEST(e.message().find("far") != std::string::npos, e.message());
  for (std::uint64_t i = 0; i < count; ++i) {
    peer_message m = co_await p.far.recv();
    if (m.tag() != i) throw std::runtime_error{"messages changed places"};
  }
  co_await sender.join();
  e = co_await error_of(with_timeout(10ms, p.far.recv()));  // the one that timed out never comes
  BOOST_TEST((e == errc::timed_out));
}

task<void> both_flood(carrier over) {
  task<pair_of_peers> meeting = meet(over);
  pair_of_peers p = co_await std::move(meeting);
  const environment& here = co_await this_environment{};
  scope both{here};
  std::uint64_t there = 0;
  std::uint64_t back = 0;
  both.spawn(send_numbers(p.near, 200, 400'000, there));
  both.spawn(send_numbers(p.far, 200, 400'000, back));
  for (std::uint64_t i = 0; i < 200; ++i) {
    peer_message a = co_await p.far.recv();
    peer_message b = co_await p.near.recv();
    if (a.tag() != i || b.tag() != i) throw std::runtime_error{"messages changed places"};
  }
  co_await both.join();
}

task<void> withdrawn_half_way(carrier over) {
  endpoint_options wide = named("far");
  wide.byte_limit = std::size_t{64} << 20;
  task<pair_of_peers> meeting = meet(over, named("near"), wide);
  pair_of_peers p = co_await std::move(meeting);
  std::vector<std::uint32_t> values(4'000'000);
  std::iota(values.begin(), values.end(), 0U);
  // The sockets take a part of it inside the call; the await is stopped before they can take the rest.
  error e = co_await error_of(with_timeout(0ms, p.near.send(1, values)));
  BOOST_TEST((e == errc::timed_out));
  std::ranges::fill(values, 0U);
  co_await p.near.send(2, std::string_view{"behind it"});
  peer_message whole = co_await p.far.recv();
  if (whole.tag() == 1) {
    const auto got = whole.values<std::uint32_t>();
    BOOST_TEST(got.size() == values.size());
    bool right = true;
    for (std::size_t i = 0; i < got.size(); ++i) right = right && got[i] == i;
    BOOST_TEST(right);
    whole = co_await p.far.recv();
  }
  BOOST_TEST(whole.text() == "behind it");
}

task<void> goodbye(carrier over) {
  task<pair_of_peers> meeting = meet(over);
  pair_of_peers p = co_await std::move(meeting);
  co_await p.near.send(1, std::string_view{"last words"});
  co_await p.near.close();
  BOOST_TEST((p.near.cause() == errc::invalid_state));
  peer_message m = co_await p.far.recv();
  BOOST_TEST(m.text() == "last words");
  error e = co_await error_of(p.far.recv());
  BOOST_TEST((e == errc::peer_left));
  BOOST_TEST(e.message().find("near") != std::string::npos, e.message());
  e = co_await error_of(p.far.send(1, std::string_view{"too late"}));
  BOOST_TEST((e == errc::peer_left));
  e = co_await error_of(p.near.send(1, std::string_view{"closed"}));
  BOOST_TEST((e == errc::invalid_state));
  error cause = co_await p.far.ended();
  BOOST_TEST((cause == errc::peer_left));
}

task<void> dropped_handle(carrier over) {
  task<pair_of_peers> meeting = meet(over);
  pair_of_peers p = co_await std::move(meeting);
  BOOST_TEST(p.service.peers() == 1U);
  p.near = {};
  error e = co_await error_of(p.far.recv());
  BOOST_TEST((e == errc::peer_left));
  BOOST_TEST(p.service.peers() == 0U);
}

/// `close` waits for what is queued, also where the other side has to make room first.
task<void> close_behind(peer_handle peer, bool& closed) {
  co_await peer.close();
  closed = true;
}
task<void> close_flushes(carrier over) {
  task<pair_of_peers> meeting = meet(over);
  pair_of_peers p = co_await std::move(meeting);
  std::uint64_t done = 0;
  const environment& here = co_await this_environment{};
  scope work{here};
  for (int i = 0; i < 8; ++i) work.spawn(send_numbers(p.near, 1, 500'000, done));
  while (done < 2) co_await sleep_for(1ms);
  bool closed = false;
  work.spawn(close_behind(p.near, closed));
  co_await sleep_for(20ms);  // time for what must not happen: nobody has made room
  BOOST_TEST(done == 2U);
  BOOST_TEST(!closed);
  for (int i = 0; i < 8; ++i) {
    peer_message m = co_await p.far.recv();
    if (m.bytes().size() != 500'000) throw std::runtime_error{"a message was cut"};
  }
  co_await work.join();
  BOOST_TEST(closed);
  BOOST_TEST(done == 8U);
}

task<void> refusals(carrier over) {
  task<listener> opening = listen(free_address(over), named("far"));
  listener service = co_await std::move(opening);
  endpoint_options other = named("near");
  other.secret = "wrong";
  error e = co_await error_of(connect(service.where(), other));
  BOOST_TEST((e == errc::secret_refused));
  other = named("near");
  other.service = "another";
  e = co_await error_of(connect(service.where(), other));
  BOOST_TEST((e == errc::invalid_argument));
  BOOST_TEST(e.message().find("another service") != std::string::npos, e.message());
  other.byte_limit = 10;
  e = co_await error_of(connect(service.where(), other));
  BOOST_TEST((e == errc::invalid_argument));
  BOOST_TEST(service.peers() == 0U);
  BOOST_TEST(service.strangers() == 2U);
}

task<void> full_service(carrier over) {
  endpoint_options two = named("far");
  two.most_peers = 2;
  task<listener> opening = listen(free_address(over), two);
  listener service = co_await std::move(opening);
  peer_handle first = co_await connect(service.where(), named("a"));
  peer_handle second = co_await connect(service.where(), named("b"));
  error e = co_await error_of(connect(service.where(), named("c")));
  BOOST_TEST((e == errc::invalid_state));
  co_await first.close();
  while (service.peers() == 2) co_await sleep_for(1ms);
  peer_handle third = co_await connect(service.where(), named("c"));
  BOOST_TEST(!third.cause());
}

task<void> closed_listener(carrier over) {
  task<listener> opening = listen(free_address(over), named("far"));
  listener service = co_await std::move(opening);
  const std::string where = service.where();
  peer_handle taken_near = co_await connect(where, named("taken"));
  peer_handle taken = co_await service.accept();
  peer_handle waiting = co_await connect(where, named("waiting"));
  co_await sleep_for(10ms);
  service.close();
  error e = co_await error_of(service.accept());
  BOOST_TEST((e == errc::invalid_state));
  e = co_await error_of(waiting.recv());
  BOOST_TEST((e == errc::peer_left));
  co_await taken.send(1, std::string_view{"goes on"});
  peer_message m = co_await taken_near.recv();
  BOOST_TEST(m.text() == "goes on");
  e = co_await error_of(connect(where, named("late")));
  BOOST_TEST(static_cast<bool>(e));
}

task<void> listen_later(std::string where, std::optional<listener>& service) {
  co_await sleep_for(80ms);
  task<listener> opening = listen(where, named("far"));
  service.emplace(co_await std::move(opening));
}
task<void> patience_is_rewarded() {
  const std::string where = free_address(carrier::unix_socket);
  error e = co_await error_of(connect(where, named("near")));
  BOOST_TEST((e == errc::system_error));
  std::optional<listener> service;
  const environment& here = co_await this_environment{};
  scope later{here};
  later.spawn(listen_later(where, service));
  endpoint_options patient = named("near");
  patient.patience = 10s;
  peer_handle peer = co_await connect(where, patient);
  co_await later.join();
  BOOST_TEST(!peer.cause());
}

task<void> reach_refused() {
  endpoint_options open = named("far");
  open.secret.clear();
  error e = co_await error_of(listen("0.0.0.0:0", open));
  BOOST_TEST((e == errc::invalid_argument));
  BOOST_TEST(e.message().find("secret") != std::string::npos, e.message());
  e = co_await error_of(connect("192.0.2.1:7", open));
  BOOST_TEST((e == errc::invalid_argument));
  e = co_await error_of(listen("nonsense", open));
  BOOST_TEST((e == errc::invalid_argument));
  task<listener> opening = listen("127.0.0.1:0", open);
  listener service = co_await std::move(opening);
  peer_handle peer = co_await connect(service.where(), open);
  BOOST_TEST(!peer.cause());
}

/// A socket file goes with its listener, gives way when its service was killed, and not while it lives.
task<void> socket_files() {
  const std::string file =
      std::filesystem::temp_directory_path() / ("endpoint-" + std::to_string(::getpid()));
  const std::string where = "unix:" + file;
  const auto target = address::parse(where).value();
  unique_fd killed = listen_on(target).value();
  killed.reset();
  BOOST_TEST(std::filesystem::exists(file));
  task<listener> opening = listen(where, named("far"));
  listener service = co_await std::move(opening);
  error e = co_await error_of(listen(where, named("second")));
  BOOST_TEST((e == errc::system_error), e.message());
  peer_handle peer = co_await connect(where, named("near"));
  BOOST_TEST(!peer.cause());
  service.close();
  BOOST_TEST(!std::filesystem::exists(file));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(endpoint_messages)

BOOST_DATA_TEST_CASE(messages_with_tags_and_heads, data::make(everywhere), at) {
  run(at.backend, messages_arrive(at.over));
}
BOOST_DATA_TEST_CASE(tensors_into_the_callers_memory_or_their_own, data::make(everywhere), at) {
  run(at.backend, tensors_arrive(at.over));
}
BOOST_DATA_TEST_CASE(what_can_not_be_sent_is_refused_and_says_why, data::make(everywhere), at) {
  run(at.backend, bad_arguments_are_refused(at.over));
}
BOOST_DATA_TEST_CASE(a_slow_reader_holds_its_limit_and_the_sender_waits, data::make(everywhere), at) {
  run(at.backend, slow_reader(at.over));
}
BOOST_DATA_TEST_CASE(both_sides_flood_each_other_and_nobody_is_stuck, data::make(everywhere), at) {
  run(at.backend, both_flood(at.over));
}
BOOST_DATA_TEST_CASE(a_send_that_is_stopped_half_way_arrives_whole, data::make(everywhere), at) {
  run(at.backend, withdrawn_half_way(at.over));
}
BOOST_DATA_TEST_CASE(a_goodbye_comes_after_all_that_was_sent, data::make(everywhere), at) {
  run(at.backend, goodbye(at.over));
}
BOOST_DATA_TEST_CASE(the_last_handle_says_goodbye, data::make(everywhere), at) {
  run(at.backend, dropped_handle(at.over));
}
BOOST_DATA_TEST_CASE(close_sends_what_is_queued, data::make(everywhere), at) {
  run(at.backend, close_flushes(at.over));
}
BOOST_DATA_TEST_CASE(the_wrong_secret_or_service_is_refused, data::make(everywhere), at) {
  run(at.backend, refusals(at.over));
}
BOOST_DATA_TEST_CASE(a_full_service_says_so, data::make(everywhere), at) {
  run(at.backend, full_service(at.over));
}
BOOST_DATA_TEST_CASE(a_closed_listener_keeps_what_was_accepted, data::make(everywhere), at) {
  run(at.backend, closed_listener(at.over));
}
BOOST_AUTO_TEST_CASE(connecting_waits_for_a_service_to_start) {
  run(candidate::epoll, patience_is_rewarded());
}
BOOST_AUTO_TEST_CASE(socket_files_go_with_their_service) { run(candidate::epoll, socket_files()); }
BOOST_AUTO_TEST_CASE(no_secret_no_reach_beyond_this_host) { run(candidate::epoll, reach_refused()); }

BOOST_AUTO_TEST_SUITE_END()
