#include <chorale/async/io.hpp>
#include <chorale/transport/endpoint/frame.hpp>
#include <chorale/transport/endpoint/greeting.hpp>
#include <chorale/transport/socket.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <climits>
#include <span>
#include <vector>

namespace chorale::endpoints {
namespace {

/// Names end up in messages for people: what could confuse a terminal becomes a question mark.
std::string printable(std::span<const char> raw) {
  std::string text{raw.begin(), raw.end()};
  std::ranges::replace_if(text, [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return text;
}

task<result<introduction>> exchange_open(int fd, introduction mine) {
  mine.name.resize(std::min(mine.name.size(), longest_name));
  const auto header = encode(
      {.kind = frame_kind::open, .head = static_cast<std::uint16_t>(mine.name.size()), .tag = mine.window});
  std::vector<std::byte> opening{header.begin(), header.end()};
  const auto name = std::as_bytes(std::span{mine.name});
  opening.insert(opening.end(), name.begin(), name.end());
  auto sent = co_await send_all(fd, opening.data(), opening.size());
  if (!sent) co_return std::move(sent).error();

  std::array<std::byte, header_bytes> bytes{};
  auto heard = co_await recv_all(fd, bytes.data(), bytes.size());
  if (!heard) co_return std::move(heard).error();
  const frame_header theirs = decode(bytes);
  const bool sound = theirs.kind == frame_kind::open && theirs.version == frame_version && theirs.size == 0 &&
                     theirs.dimensions == 0 && theirs.head <= longest_name && theirs.tag >= least_window;
  if (!sound) co_return error{errc::protocol_error, peer_address(fd).text() + " opened with a wrong frame"};
  std::array<char, longest_name> raw{};
  auto named = co_await recv_all(fd, raw.data(), theirs.head);
  if (!named) co_return std::move(named).error();
  introduction other;
  other.name = printable(std::span{raw}.first(theirs.head));
  other.window = theirs.tag;
  co_return other;
}

}  // namespace

std::uint64_t fingerprint_of(std::string_view service) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : service) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

task<result<introduction>> greet_service(int fd, std::string secret, std::string service, introduction mine) {
  hello self;
  self.purpose = hello_purpose::endpoint;
  self.nonce = fingerprint_of(service);
  auto greeted = co_await greet(fd, secret, self);
  if (!greeted) co_return std::move(greeted).error();
  task<result<introduction>> opening = exchange_open(fd, std::move(mine));
  auto opened = co_await std::move(opening);
  co_return opened;
}

task<result<introduction>> answer_peer(int fd, std::string secret, std::string service, introduction mine,
                                       std::function<bool()> room) {
  const std::uint64_t wanted = fingerprint_of(service);
  const hello_judge judge = [&](const hello& theirs) {
    if (theirs.purpose != hello_purpose::endpoint) return hello_status::unexpected;
    if (theirs.nonce != wanted) return hello_status::service;
    return room() ? hello_status::ok : hello_status::full;
  };
  auto answered = co_await answer_hello(fd, secret, judge);
  if (!answered) co_return std::move(answered).error();
  task<result<introduction>> opening = exchange_open(fd, std::move(mine));
  auto opened = co_await std::move(opening);
  co_return opened;
}

void limit_silence(int fd, std::int64_t milliseconds) noexcept {
  if (local_address(fd).is_unix()) return;
  const auto limit = static_cast<unsigned>(std::clamp<std::int64_t>(milliseconds, 0, INT_MAX));
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
}

}  // namespace chorale::endpoints
