// The hello between two ends of a socket pair: who gets through, who does not, and what an onlooker sees.
#include "support.hpp"
#include <chorale/async/io.hpp>
#include <chorale/async/when.hpp>
#include <chorale/async/with_environment.hpp>
#include <chorale/transport/bootstrap/bytes.hpp>
#include <chorale/transport/bootstrap/hello.hpp>
#include <chorale/transport/bootstrap/secret.hpp>

#include <boost/test/unit_test.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>

namespace chorale {
namespace {

struct ends {
  ends() {
    std::array<int, 2> fds{};
    BOOST_TEST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) == 0);
    connector.reset(fds[0]);
    acceptor.reset(fds[1]);
  }
  unique_fd connector, acceptor;
};

hello introduction() {
  hello h;
  h.purpose = hello_purpose::data;
  h.flags = hello::between_mates;
  h.index = 3;
  h.from = 7;
  h.to = 2;
  h.epoch = 11;
  h.nonce = 0x123456789abcdef0;
  h.capabilities = 5;
  return h;
}

struct outcome {
  result<void> connecting;
  result<hello> accepting;
};

// A failing side closes, as its owner would: the other must not wait for it.
task<result<void>> connect_side(unique_fd& fd, std::string secret, hello mine) {
  task<result<void>> greeting = greet(fd.get(), secret, mine);
  auto greeted = co_await std::move(greeting);
  if (!greeted) fd.reset();
  co_return greeted;
}
task<result<hello>> accept_side(unique_fd& fd, std::string secret, hello_status status) {
  const hello_judge judge = [status](const hello&) { return status; };
  task<result<hello>> answering = answer_hello(fd.get(), secret, judge);
  auto answered = co_await std::move(answering);
  if (!answered) fd.reset();
  co_return answered;
}

outcome meet(std::string connector_secret, std::string acceptor_secret,
             hello_status judged = hello_status::ok) {
  ends e;
  engine loop;
  auto [connecting, accepting] =
      loop.run(when_all(connect_side(e.connector, std::move(connector_secret), introduction()),
                        accept_side(e.acceptor, std::move(acceptor_secret), judged)));
  return {std::move(connecting), std::move(accepting)};
}

BOOST_AUTO_TEST_SUITE(hellos)

BOOST_AUTO_TEST_CASE(the_same_secret_opens) {
  for (const char* secret : {"", "s", "a longer secret of some job"}) {
    const outcome o = meet(secret, secret);
    BOOST_TEST(o.connecting.has_value());
    BOOST_TEST_REQUIRE(o.accepting.has_value());
    const hello& h = *o.accepting;
    BOOST_TEST((h.purpose == hello_purpose::data));
    BOOST_TEST(h.flags == hello::between_mates);
    BOOST_TEST(h.index == 3);
    BOOST_TEST(h.from == 7);
    BOOST_TEST(h.to == 2);
    BOOST_TEST(h.epoch == 11U);
    BOOST_TEST(h.nonce == 0x123456789abcdef0U);
    BOOST_TEST(h.capabilities == 5U);
  }
}

BOOST_AUTO_TEST_CASE(another_secret_does_not) {
  for (const auto& [a, b] : {std::pair{"one", "two"}, std::pair{"", "two"}, std::pair{"one", ""}}) {
    const outcome o = meet(a, b);
    BOOST_TEST_REQUIRE(!o.connecting);
    BOOST_TEST((o.connecting.error().code() == errc::secret_refused));
    BOOST_TEST_REQUIRE(!o.accepting);
    BOOST_TEST((o.accepting.error().code() == errc::secret_refused));
  }
}

BOOST_AUTO_TEST_CASE(a_judge_refuses_with_its_reason) {
  const outcome stale = meet("s", "s", hello_status::stale);
  BOOST_TEST((stale.connecting.error().code() == errc::excluded));
  BOOST_TEST((stale.accepting.error().code() == errc::excluded));
  const outcome unexpected = meet("s", "s", hello_status::unexpected);
  BOOST_TEST((unexpected.connecting.error().code() == errc::protocol_error));
}

std::vector<std::byte> captured(const ends& e, std::span<const std::byte> said) {
  (void)!::write(e.connector.get(), said.data(), said.size());
  ::shutdown(e.connector.get(), SHUT_WR);
  return {said.begin(), said.end()};
}

result<hello> answer_to(std::span<const std::byte> said) {
  const ends e;
  (void)captured(e, said);
  engine loop;
  const hello_judge judge = [](const hello&) { return hello_status::ok; };
  return loop.run(answer_hello(e.acceptor.get(), "s", judge));
}

BOOST_AUTO_TEST_CASE(strangers_get_nowhere) {
  std::mt19937 random{20261130};
  BOOST_TEST_MESSAGE("seed 20261130");
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> noise(random() % 200);
    for (std::byte& b : noise) b = static_cast<std::byte>(random());
    // Half of them know the first word.
    if (i % 2 == 0 && noise.size() >= 6) {
      const std::array<unsigned char, 6> start{'C', 'H', 'R', 'L', protocol_version, 0};
      std::transform(start.begin(), start.end(), noise.begin(), [](unsigned char c) { return std::byte{c}; });
    }
    BOOST_TEST(!answer_to(noise).has_value());
  }
}

BOOST_AUTO_TEST_CASE(another_version_is_told_so) {
  const ends e;
  byte_writer opening;
  opening.put(std::uint32_t{0x4c524843});
  opening.put(static_cast<std::uint16_t>(protocol_version + 1));
  opening.put_bytes(std::vector<std::byte>(58));
  (void)captured(e, opening.bytes());
  engine loop;
  const hello_judge judge = [](const hello&) { return hello_status::ok; };
  const auto heard = loop.run(answer_hello(e.acceptor.get(), "s", judge));
  BOOST_TEST_REQUIRE(!heard.has_value());
  BOOST_TEST((heard.error().message().find("version 2") != std::string::npos));
  std::array<unsigned char, 24> answer{};
  BOOST_TEST_REQUIRE(::read(e.connector.get(), answer.data(), answer.size()) == 24);
  BOOST_TEST(answer[4] == protocol_version);
  BOOST_TEST(answer[6] == static_cast<unsigned>(hello_status::version));
}

BOOST_AUTO_TEST_CASE(an_acceptor_that_proves_nothing_is_refused) {
  // It echoes plausible blocks without knowing the secret.
  const ends e;
  byte_writer lies;
  for (const std::size_t rest : {16U, 32U}) {
    lies.put(std::uint32_t{0x4c524843});
    lies.put(protocol_version);
    lies.put(std::uint16_t{0});
    lies.put_bytes(std::vector<std::byte>(rest));
  }
  (void)!::write(e.acceptor.get(), lies.bytes().data(), lies.bytes().size());
  engine loop;
  const hello mine = introduction();
  const auto greeted = loop.run(greet(e.connector.get(), "s", mine));
  BOOST_TEST_REQUIRE(!greeted.has_value());
  BOOST_TEST((greeted.error().code() == errc::secret_refused));
}

BOOST_AUTO_TEST_CASE(silence_ends_with_the_deadline) {
  const ends e;
  engine loop;
  const hello_judge judge = [](const hello&) { return hello_status::ok; };
  const auto heard =
      loop.run(with_timeout(std::chrono::milliseconds{30}, answer_hello(e.acceptor.get(), "s", judge)));
  BOOST_TEST_REQUIRE(!heard.has_value());
  BOOST_TEST((heard.error().code() == errc::timed_out));
}

BOOST_AUTO_TEST_CASE(a_recording_can_not_be_replayed) {
  // What a connector said in a good hello, said again: the acceptor's new challenge makes the old proof
  // worthless.
  ends e;
  engine loop;
  std::vector<std::byte> recording;
  {
    ends relay;
    // The connector talks to the relay, whose bytes go on to the acceptor and into the recording.
    const auto forward = [](int from, int to, std::vector<std::byte>* keep) -> task<void> {
      std::array<std::byte, 256> buffer{};
      for (;;) {
        const auto got = co_await recv_some(from, buffer.data(), buffer.size());
        if (!got || *got == 0) co_return;
        if (keep)
          keep->insert(keep->end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*got));
        task<result<void>> sending = send_all(to, buffer.data(), *got);
        (void)co_await std::move(sending);
      }
    };
    const auto both = [](scope& s, ends& near, ends& far, auto relay_bytes,
                         std::vector<std::byte>* keep) -> task<void> {
      s.spawn(relay_bytes(near.acceptor.get(), far.connector.get(), keep));
      s.spawn(relay_bytes(far.connector.get(), near.acceptor.get(), nullptr));
      const hello mine = introduction();
      auto [greeted, heard] = co_await when_all(connect_side(near.connector, "secret", mine),
                                                accept_side(far.acceptor, "secret", hello_status::ok));
      BOOST_TEST(greeted.has_value());
      BOOST_TEST(heard.has_value());
      s.request_stop();
    };
    const auto scenario = [&](auto) -> task<void> {
      const environment& here = co_await this_environment{};
      scope s{here};
      task<void> run = both(s, e, relay, forward, &recording);
      co_await std::move(run);
      co_await s.join();
    };
    loop.run(scenario(0));
  }
  BOOST_TEST_REQUIRE(recording.size() == 96U);
  const std::string_view seen{reinterpret_cast<const char*>(recording.data()), recording.size()};
  BOOST_TEST((seen.find("secret") == std::string_view::npos));

  const ends again;
  (void)captured(again, recording);
  const hello_judge judge = [](const hello&) { return hello_status::ok; };
  const auto heard = loop.run(answer_hello(again.acceptor.get(), "secret", judge));
  BOOST_TEST_REQUIRE(!heard.has_value());
  BOOST_TEST((heard.error().code() == errc::secret_refused));
}

BOOST_AUTO_TEST_CASE(hmac_matches_the_published_vectors) {
  // RFC 4231, test cases 2 and 1.
  const std::string_view message = "what do ya want for nothing?";
  BOOST_TEST(to_hex(hmac_sha256("Jefe", std::as_bytes(std::span{message}))) ==
             "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  const std::string_view greeting = "Hi There";
  BOOST_TEST(to_hex(hmac_sha256(std::string(20, '\x0b'), std::as_bytes(std::span{greeting}))) ==
             "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale
