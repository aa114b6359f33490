// Proving that two processes share a host: the same user, and a descriptor that arrives through the socket.
//
// Runs after the hello on a unix socket. False means "no mates", on both sides; the socket is then closed by
// whoever made it.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/async/task.hpp>

namespace chorale {

/// The process on the other end of this unix socket runs as the same user.
[[nodiscard]] bool same_user(int unix_socket);
/// The connecting side passes a sealed memfd with random bytes and is told whether they could be read.
[[nodiscard]] task<bool> offer_descriptor(int unix_socket);
/// The accepting side.
[[nodiscard]] task<bool> check_descriptor(int unix_socket);

}  // namespace chorale
