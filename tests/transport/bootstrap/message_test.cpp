// Messages, records and tables: what goes in comes out, and no cut or altered bytes do harm.
#include <chorale/async/engine.hpp>
#include <chorale/async/with_environment.hpp>
#include <chorale/transport/bootstrap/membership.hpp>
#include <chorale/transport/bootstrap/message.hpp>

#include <boost/test/unit_test.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <random>

namespace chorale {
namespace {

constexpr unsigned seed = 4711;

std::string random_text(std::mt19937& random, std::size_t most) {
  std::string text(random() % (most + 1), ' ');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

member_table random_table(std::mt19937& random) {
  member_table table;
  table.epoch = random();
  table.nonce = random();
  const auto count = static_cast<rank_t>(1 + random() % 9);
  for (rank_t r = 0; r < count; ++r) {
    member_record m;
    m.rank = r;
    m.origin = static_cast<rank_t>(random() % 100);
    m.size = static_cast<rank_t>(random() % 100);
    m.capabilities = random();
    m.pid = static_cast<std::int32_t>(random());
    m.uid = static_cast<std::uint32_t>(random());
    m.stripes = static_cast<std::uint16_t>(random());
    m.flags = static_cast<std::uint16_t>(random());
    m.host_id = random_text(random, 40);
    m.mate_name = random_text(random, 40);
    for (auto a = random() % 4; a != 0; --a) m.addresses.push_back(random_text(random, 30));
    table.members.push_back(std::move(m));
  }
  return table;
}

std::vector<std::byte> encoded(const member_table& table) {
  byte_writer out;
  encode(table, out);
  return std::move(out).take();
}

struct ends {
  ends() {
    std::array<int, 2> fds{};
    BOOST_TEST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) == 0);
    ours = message_connection{unique_fd{fds[0]}};
    theirs.reset(fds[1]);
  }
  void say(std::span<const std::byte> bytes) const {
    (void)!::write(theirs.get(), bytes.data(), bytes.size());
  }
  message_connection ours;
  unique_fd theirs;
};

BOOST_AUTO_TEST_SUITE(messages)

BOOST_AUTO_TEST_CASE(tables_survive_the_wire) {
  std::mt19937 random{seed};
  BOOST_TEST_MESSAGE("seed " << seed);
  for (int i = 0; i < 200; ++i) {
    const member_table table = random_table(random);
    const auto bytes = encoded(table);
    const auto decoded = decode_table(bytes);
    BOOST_TEST_REQUIRE(decoded.has_value());
    BOOST_TEST((encoded(*decoded) == bytes));
    BOOST_TEST(decoded->members.back().host_id == table.members.back().host_id);
  }
}

BOOST_AUTO_TEST_CASE(cut_tables_are_refused) {
  std::mt19937 random{seed};
  const auto bytes = encoded(random_table(random));
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) BOOST_TEST(!decode_table(std::span{bytes}.first(cut)));
}

BOOST_AUTO_TEST_CASE(altered_tables_do_no_harm) {
  std::mt19937 random{seed};
  for (int i = 0; i < 2000; ++i) {
    auto bytes = encoded(random_table(random));
    for (auto changes = 1 + random() % 4; changes != 0; --changes)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto decoded = decode_table(bytes);
    if (decoded) BOOST_TEST(decoded->members.size() <= bytes.size() / 38);
  }
}

BOOST_AUTO_TEST_CASE(errors_survive_the_wire) {
  byte_writer out;
  encode(error{errc::peer_lost, "detail", 3}, out);
  const error back = decode_error(out.bytes());
  BOOST_TEST((back.code() == errc::peer_lost));
  BOOST_TEST(back.culprit() == 3);
  BOOST_TEST(back.detail() == "detail");
  BOOST_TEST((decode_error({}).code() == errc::protocol_error));
}

BOOST_AUTO_TEST_CASE(ranks_are_listed_for_people) {
  BOOST_TEST(list_ranks({2}) == "rank 2");
  BOOST_TEST(list_ranks({2, 3}) == "ranks 2 and 3");
  BOOST_TEST(list_ranks({0, 4, 7}) == "ranks 0, 4 and 7");
  BOOST_TEST(list_ranks({1, 2, 3, 4, 9}) == "ranks 1 to 4 and 9");
  BOOST_TEST(list_ranks({1, 2, 3}) == "ranks 1 to 3");
}

BOOST_AUTO_TEST_CASE(a_stopped_receive_keeps_its_place) {
  const ends e;
  engine loop;
  message_connection connection{unique_fd{::dup(e.ours.fd())}};
  std::vector<std::byte> body(1000);
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<std::byte>(i);
  const auto bytes = encode_message(message_kind::record, body);
  for (const std::size_t piece : {3U, 5U, 400U}) {
    static std::size_t said = 0;
    e.say(std::span{bytes}.subspan(said, piece));
    said += piece;
    const auto got = loop.run(with_timeout(std::chrono::milliseconds{5}, connection.receive(2000)));
    BOOST_TEST_REQUIRE(!got.has_value());
    BOOST_TEST((got.error().code() == errc::timed_out));
    if (piece == 400U) e.say(std::span{bytes}.subspan(said));
  }
  const auto got = loop.run(connection.receive(2000));
  BOOST_TEST_REQUIRE(got.has_value());
  BOOST_TEST((got->kind == message_kind::record));
  BOOST_TEST((got->body == body));
}

BOOST_AUTO_TEST_CASE(two_messages_in_one_piece_stay_two) {
  const ends e;
  engine loop;
  message_connection connection{unique_fd{::dup(e.ours.fd())}};
  auto bytes = encode_message(message_kind::bye, {});
  const auto second = encode_message(message_kind::table, std::vector<std::byte>(5));
  bytes.insert(bytes.end(), second.begin(), second.end());
  e.say(bytes);
  BOOST_TEST((loop.run(connection.receive(10))->kind == message_kind::bye));
  BOOST_TEST(loop.run(connection.receive(10))->body.size() == 5U);
}

BOOST_AUTO_TEST_CASE(what_is_too_long_is_refused_before_it_is_stored) {
  const ends e;
  engine loop;
  message_connection connection{unique_fd{::dup(e.ours.fd())}};
  e.say(encode_message(message_kind::record, std::vector<std::byte>(100)));
  const auto got = loop.run(connection.receive(99));
  BOOST_TEST_REQUIRE(!got.has_value());
  BOOST_TEST((got.error().code() == errc::protocol_error));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale
