// How two endpoints become peers: the hello that all connections begin with, then one open frame each way.
//
// Runs on the caller's engine, who owns the descriptor and bounds it in time. Until it has succeeded nothing
// of the other side is believed and nothing is kept.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/async/task.hpp>
#include <chorale/transport/bootstrap/hello.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace chorale::endpoints {

/// What one side tells the other.
struct introduction {
  std::string name;          ///< for errors: at most longest_name bytes, printable
  std::uint64_t window = 0;  ///< bytes it receives unread, for each kind of window
};

/// errc::secret_refused, invalid_argument (another service), invalid_state (full), protocol_error, link_lost.
[[nodiscard]] task<result<introduction>> greet_service(int fd, std::string secret, std::string service,
                                                       introduction mine);
/// `room`: whether one more peer may come; asked once the connector has proved itself.
[[nodiscard]] task<result<introduction>> answer_peer(int fd, std::string secret, std::string service,
                                                     introduction mine, std::function<bool()> room);

/// FNV-1a, 64 bits.
[[nodiscard]] std::uint64_t fingerprint_of(std::string_view service) noexcept;
/// Silent for this long with unacknowledged bytes: the host counts as lost. Nothing for unix sockets.
void limit_silence(int fd, std::int64_t milliseconds) noexcept;

}  // namespace chorale::endpoints
