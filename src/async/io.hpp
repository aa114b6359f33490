// Awaitable requests to the kernel: `auto sent = co_await send_some(fd, data, size);`
//
// Each returns result<std::size_t> (bytes, or for accept the new fd, for poll the events) and never throws.
// The fd must be non-blocking. A stop request cancels the request and the await ends only when the kernel has
// given it back, with errc::cancelled or errc::timed_out, or with what was transferred first. Storage stays
// the caller's.
#pragma once

#include <chorale/async/suspension.hpp>

#include <cstddef>
#include <utility>

namespace chorale {

class [[nodiscard]] io_awaiter : public suspension, private io_operation {
 public:
  io_awaiter(io_kind what, int on, void* bytes, std::size_t count, int how, const char* name) noexcept
      : suspension{on_stop}, io_operation{completed}, name_{name} {
    kind = what;
    fd = on;
    data = bytes;
    size = count;
    flags = how;
  }
  io_awaiter(io_kind what, int on, msghdr* header, int how, const char* name) noexcept
      : io_awaiter{what, on, nullptr, 0, how, name} {
    message = header;
  }
  io_awaiter(int on, const sockaddr* to, socklen_t to_size) noexcept
      : io_awaiter{io_kind::connect, on, nullptr, 0, 0, "connect"} {
    address = to;
    address_size = to_size;
  }

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <environment_promise Promise>
  bool await_suspend(std::coroutine_handle<Promise> waiting) noexcept {
    if (!suspend(waiting, waiting.promise().env())) return io_operation::result = -ECANCELED, false;
    loop().io().submit(*this);
    return true;
  }
  [[nodiscard]] chorale::result<std::size_t> await_resume() const {
    const int outcome = io_operation::result;
    if (outcome >= 0) return static_cast<std::size_t>(outcome);
    if (outcome == -ECANCELED && stop_reason() != errc::ok) return error{stop_reason(), name_};
    return error::from_os(-outcome, name_);
  }

 private:
  static void completed(operation& op) noexcept {
    static_cast<io_awaiter&>(static_cast<io_operation&>(op)).finish();
  }
  static void on_stop(suspension& base) noexcept {
    auto& self = static_cast<io_awaiter&>(base);
    self.loop().io().cancel(self);
  }
  const char* name_;
};

[[nodiscard]] inline io_awaiter send_some(int fd, const void* data, std::size_t size,
                                          int flags = 0) noexcept {
  return {io_kind::send, fd, const_cast<void*>(data), size, flags | MSG_NOSIGNAL, "send"};
}
[[nodiscard]] inline io_awaiter recv_some(int fd, void* data, std::size_t size, int flags = 0) noexcept {
  return {io_kind::recv, fd, data, size, flags, "recv"};
}
[[nodiscard]] inline io_awaiter send_message(int fd, msghdr& message, int flags = 0) noexcept {
  return {io_kind::sendmsg, fd, &message, flags | MSG_NOSIGNAL, "sendmsg"};
}
[[nodiscard]] inline io_awaiter recv_message(int fd, msghdr& message, int flags = 0) noexcept {
  return {io_kind::recvmsg, fd, &message, flags, "recvmsg"};
}
/// The new fd is non-blocking and close-on-exec.
[[nodiscard]] inline io_awaiter accept_one(int fd) noexcept {
  return {io_kind::accept, fd, nullptr, 0, SOCK_NONBLOCK | SOCK_CLOEXEC, "accept"};
}
[[nodiscard]] inline io_awaiter connect_to(int fd, const sockaddr* address, socklen_t size) noexcept {
  return {fd, address, size};
}
/// Waits for POLLIN, POLLOUT, …
[[nodiscard]] inline io_awaiter poll_fd(int fd, int events) noexcept {
  return {io_kind::poll, fd, nullptr, 0, events, "poll"};
}

/// All of `size` bytes, however many pieces the kernel makes of them. A closed connection is errc::link_lost.
inline task<result<void>> send_all(int fd, const void* data, std::size_t size) {
  const auto* at = static_cast<const std::byte*>(data);
  while (size != 0) {
    auto sent = co_await send_some(fd, at, size);
    if (!sent) co_return std::move(sent).error();
    at += *sent;
    size -= *sent;
  }
  co_return result<void>{};
}

inline task<result<void>> recv_all(int fd, void* data, std::size_t size) {
  auto* at = static_cast<std::byte*>(data);
  while (size != 0) {
    auto got = co_await recv_some(fd, at, size);
    if (!got) co_return std::move(got).error();
    if (*got == 0) co_return error{errc::link_lost, "the peer closed the connection"};
    at += *got;
    size -= *got;
  }
  co_return result<void>{};
}

}  // namespace chorale
