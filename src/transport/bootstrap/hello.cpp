#include <chorale/async/io.hpp>
#include <chorale/transport/bootstrap/bytes.hpp>
#include <chorale/transport/bootstrap/hello.hpp>
#include <chorale/transport/bootstrap/secret.hpp>
#include <chorale/transport/socket.hpp>

#include <algorithm>
#include <array>

namespace chorale {
namespace {

constexpr std::uint32_t magic = 0x4c524843;  // "CHRL"
constexpr std::size_t hello_size = 64;
constexpr std::size_t question_size = 24;
constexpr std::size_t verdict_size = 40;

std::vector<std::byte> encode(const hello& h, const challenge& mine) {
  byte_writer out;
  out.put(magic);
  out.put(protocol_version);
  out.put(static_cast<std::uint8_t>(h.purpose));
  out.put(h.flags);
  out.put(h.index);
  out.put(std::uint16_t{0});
  out.put(h.from);
  out.put(h.to);
  out.put(std::uint32_t{0});
  out.put(h.epoch);
  out.put(h.nonce);
  out.put(h.capabilities);
  out.put_bytes(mine);
  return std::move(out).take();
}

std::vector<std::byte> encode_status(hello_status status, std::span<const std::byte> rest) {
  byte_writer out;
  out.put(magic);
  out.put(protocol_version);
  out.put(static_cast<std::uint16_t>(status));
  out.put_bytes(rest);
  return std::move(out).take();
}

proof prove(std::string_view secret, std::string_view role, std::span<const std::byte> said_first,
            std::span<const std::byte> said_second, hello_status status = hello_status::ok) {
  byte_writer transcript;
  transcript.put_text(role);
  transcript.put_bytes(said_first);
  transcript.put_bytes(said_second);
  transcript.put(static_cast<std::uint16_t>(status));
  return hmac_sha256(secret, transcript.bytes());
}

error refusal(hello_status status, std::uint16_t their_version, const std::string& whom) {
  switch (status) {
    case hello_status::version:
      return error{errc::protocol_error, whom + " speaks protocol version " + std::to_string(their_version) +
                                             ", this process version " + std::to_string(protocol_version)};
    case hello_status::secret:
      return error{errc::secret_refused, whom + " has another secret"};
    case hello_status::stale:
      return error{errc::excluded, whom + " is in another epoch or job"};
    case hello_status::service:
      return error{errc::invalid_argument,
                   whom + " is another service; connect with the name that its listener was given"};
    case hello_status::full:
      return error{errc::invalid_state, whom + " has as many peers as it takes; try again when one has left"};
    default:
      return error{errc::protocol_error, whom + " did not expect this connection"};
  }
}

// A status block from the acceptor: question or verdict.
struct block {
  hello_status status;
  std::uint16_t version;
};
result<block> read_status(std::span<const std::byte> bytes, const std::string& whom) {
  byte_reader in{bytes};
  const auto word = in.take<std::uint32_t>();
  const auto version = in.take<std::uint16_t>();
  const auto status = static_cast<hello_status>(in.take<std::uint16_t>());
  if (word != magic) return error{errc::protocol_error, whom + " is no chorale process"};
  if (version != protocol_version) return refusal(hello_status::version, version, whom);
  return block{status, version};
}

}  // namespace

task<result<void>> greet(int fd, std::string_view secret, const hello& mine) {
  const std::string whom = peer_address(fd).text();
  const std::vector<std::byte> opening = encode(mine, random_challenge());
  auto sent = co_await send_all(fd, opening.data(), opening.size());
  if (!sent) co_return sent;

  std::array<std::byte, question_size> question{};
  auto asked = co_await recv_all(fd, question.data(), question.size());
  if (!asked) co_return asked;
  const auto first = read_status(question, whom);
  if (!first) co_return first.error();
  if (first->status != hello_status::ok) co_return refusal(first->status, first->version, whom);

  const proof connect_proof = prove(secret, "connect", opening, question);
  auto proved = co_await send_all(fd, connect_proof.data(), connect_proof.size());
  if (!proved) co_return proved;

  std::array<std::byte, verdict_size> verdict{};
  auto answered = co_await recv_all(fd, verdict.data(), verdict.size());
  if (!answered) co_return answered;
  const auto second = read_status(verdict, whom);
  if (!second) co_return second.error();
  // An acceptor that refuses the secret can not prove its own: its word is taken, all it can do is end this
  // hello.
  if (second->status == hello_status::secret) co_return refusal(second->status, second->version, whom);
  proof theirs{};
  std::copy_n(verdict.begin() + 8, theirs.size(), theirs.begin());
  if (!same_proof(theirs, prove(secret, "accept", opening, question, second->status)))
    co_return error{errc::secret_refused, whom + " could not prove that it knows this job's secret"};
  if (second->status != hello_status::ok) co_return refusal(second->status, second->version, whom);
  co_return result<void>{};
}

task<result<hello>> answer_hello(int fd, std::string_view secret, const hello_judge& judge) {
  std::array<std::byte, hello_size> opening{};
  auto heard = co_await recv_all(fd, opening.data(), opening.size());
  if (!heard) co_return std::move(heard).error();
  byte_reader in{opening};
  if (in.take<std::uint32_t>() != magic) co_return error{errc::protocol_error, "a stranger connected"};
  const auto version = in.take<std::uint16_t>();
  hello theirs;
  theirs.purpose = static_cast<hello_purpose>(in.take<std::uint8_t>());
  theirs.flags = in.take<std::uint8_t>();
  theirs.index = in.take<std::uint16_t>();
  (void)in.take<std::uint16_t>();
  theirs.from = in.take<rank_t>();
  theirs.to = in.take<rank_t>();
  (void)in.take<std::uint32_t>();
  theirs.epoch = in.take<std::uint64_t>();
  theirs.nonce = in.take<std::uint64_t>();
  theirs.capabilities = in.take<std::uint64_t>();

  const hello_status spoken = version == protocol_version ? hello_status::ok : hello_status::version;
  const std::vector<std::byte> question = encode_status(spoken, random_challenge());
  auto asked = co_await send_all(fd, question.data(), question.size());
  if (!asked) co_return std::move(asked).error();
  if (spoken != hello_status::ok) co_return refusal(spoken, version, peer_address(fd).text());

  proof given{};
  auto proved = co_await recv_all(fd, given.data(), given.size());
  if (!proved) co_return std::move(proved).error();
  const bool known = same_proof(given, prove(secret, "connect", opening, question));
  const hello_status status = known ? judge(theirs) : hello_status::secret;
  // No proof of ours for whoever gave none.
  const proof accept_proof = known ? prove(secret, "accept", opening, question, status) : proof{};
  const std::vector<std::byte> verdict = encode_status(status, accept_proof);
  auto answered = co_await send_all(fd, verdict.data(), verdict.size());
  if (!answered) co_return std::move(answered).error();
  if (status != hello_status::ok) co_return refusal(status, version, peer_address(fd).text());
  co_return theirs;
}

}  // namespace chorale
