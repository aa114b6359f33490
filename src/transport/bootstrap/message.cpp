#include <chorale/async/io.hpp>
#include <chorale/transport/bootstrap/message.hpp>

#include <algorithm>

namespace chorale {
namespace {

constexpr std::size_t header_size = 8;
constexpr std::size_t piece_size = 16 * 1024;

}  // namespace

std::vector<std::byte> encode_message(message_kind kind, std::span<const std::byte> body) {
  byte_writer out;
  out.put(static_cast<std::uint32_t>(body.size()));
  out.put(static_cast<std::uint16_t>(kind));
  out.put(std::uint16_t{0});
  out.put_bytes(body);
  return std::move(out).take();
}

task<result<message>> message_connection::receive(std::size_t limit) {
  for (;;) {
    std::size_t wanted = header_size;
    message next;
    if (partial_.size() >= header_size) {
      byte_reader header{std::span{partial_}.first(header_size)};
      const std::size_t body_size = header.take<std::uint32_t>();
      next.kind = static_cast<message_kind>(header.take<std::uint16_t>());
      if (body_size > limit || header.take<std::uint16_t>() != 0)
        co_return error{errc::protocol_error,
                        peer_address(fd_.get()).text() + " sent something that is no chorale message"};
      wanted += body_size;
    }
    if (partial_.size() >= header_size && partial_.size() == wanted) {
      next.body.assign(partial_.begin() + header_size, partial_.end());
      partial_.clear();
      co_return next;
    }
    // Never more than this message: its successor stays in the kernel.
    const std::size_t have = partial_.size();
    const std::size_t piece = std::min(wanted - have, piece_size);
    partial_.resize(have + piece);
    auto got = co_await recv_some(fd_.get(), partial_.data() + have, piece);
    partial_.resize(have + (got ? *got : 0));
    if (!got) co_return std::move(got).error();
    if (*got == 0) co_return error{errc::link_lost, "the peer closed the connection"};
  }
}

task<result<void>> message_connection::send(message_kind kind, std::span<const std::byte> body) {
  const std::vector<std::byte> bytes = encode_message(kind, body);
  auto sent = co_await send_all(fd_.get(), bytes.data(), bytes.size());
  co_return sent;
}

}  // namespace chorale
