// Messages on the connection between a member and the rendezvous: a size, a kind, a body.
//
// A `message_connection` keeps what it has received of an unfinished message, so that a `receive` that was
// stopped can be repeated without losing the place in the stream. One reader and one writer at a time; one
// thread.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/async/task.hpp>
#include <chorale/transport/bootstrap/bytes.hpp>
#include <chorale/transport/socket.hpp>

#include <cstdint>
#include <vector>

namespace chorale {

enum class message_kind : std::uint16_t {
  record = 1,    ///< member → rendezvous: who I am
  table = 2,     ///< rendezvous → member: who everybody is
  refused = 3,   ///< rendezvous → member: an error code and its text; the connection ends
  lost = 4,      ///< rendezvous → member: a rank of the epoch has ended without saying so
  bye = 5,       ///< member → rendezvous: I end in good order
  reset = 6,     ///< member → rendezvous: decide who goes on
  watching = 7,  ///< rendezvous → launcher: you will be told of losses and of the end
  over = 8,      ///< rendezvous → launcher: every member has ended
};

struct message {
  message_kind kind{};
  std::vector<std::byte> body;
};

/// Size (of the body, 32 bits), kind (16), zero (16), body.
[[nodiscard]] std::vector<std::byte> encode_message(message_kind kind, std::span<const std::byte> body);

class message_connection {
 public:
  message_connection() = default;
  explicit message_connection(unique_fd fd) noexcept : fd_{std::move(fd)} {}

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

  /// The next message; errc::link_lost when the peer has closed, errc::protocol_error when its body would
  /// exceed `limit` bytes.
  [[nodiscard]] task<result<message>> receive(std::size_t limit);
  [[nodiscard]] task<result<void>> send(message_kind kind, std::span<const std::byte> body);

 private:
  unique_fd fd_;
  std::vector<std::byte> partial_;
};

}  // namespace chorale
