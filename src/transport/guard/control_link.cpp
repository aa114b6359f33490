#include <chorale/transport/guard/control_link.hpp>
#include <chorale/transport/guard/fork_mark.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace chorale::guarding {
namespace {

void set(int socket, int level, int option, int value) noexcept {
  // Refused on unix sockets, which need none of it.
  static_cast<void>(::setsockopt(socket, level, option, &value, sizeof value));
}

/// Lets the kernel notice a lost host: unacknowledged bytes, and probes while the link is idle.
void prepare(int socket, std::chrono::nanoseconds timeout) noexcept {
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
  const auto whole = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  const int milliseconds = static_cast<int>(std::max<std::int64_t>(whole, 1));
  const int probe_seconds = std::max(1, milliseconds / 4000);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, probe_seconds);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, probe_seconds);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, milliseconds);
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
}

}  // namespace

control_link::control_link(rank_t rank, std::uint64_t id, owned_fd socket, announcer::link& exit,
                           std::chrono::nanoseconds timeout) noexcept
    : rank_{rank}, born_in_{fork_generation()}, id_{id}, socket_{std::move(socket)}, exit_{exit} {
  prepare(socket_.get(), timeout);
  exit_.socket = socket_.get();
}

void control_link::send(const frame_bytes& bytes) {
  if (!usable()) return;
  out_.push_back(bytes);
  if (out_.size() == 1) flush();
}

void control_link::flush() noexcept {
  while (waits_to_write()) {
    const auto& front = out_.front();
    exit_.between_frames = false;
    const auto sent = ::send(socket_.get(), front.data() + out_sent_, front.size() - out_sent_,
                             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      exit_.between_frames = out_sent_ == 0;
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        send_failed_ = true;
        os_error_ = errno;  // told once: from now on the socket says end of stream
      }
      return;
    }
    out_sent_ += static_cast<std::size_t>(sent);
    if (out_sent_ < front.size()) continue;
    out_.pop_front();
    out_sent_ = 0;
    exit_.between_frames = true;
  }
}

std::optional<frame_bytes> control_link::receive() noexcept {
  while (state_ == condition::open) {
    const auto got = ::recv(socket_.get(), in_.data() + in_size_, in_.size() - in_size_, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) end_with(errno);
      return std::nullopt;
    }
    if (got == 0) {
      end_with(send_failed_ ? os_error_ : EPIPE);
      return std::nullopt;
    }
    in_size_ += static_cast<std::size_t>(got);
    if (in_size_ < in_.size()) continue;
    in_size_ = 0;
    return in_;
  }
  return std::nullopt;
}

void control_link::end_with(int os_code) noexcept {
  os_error_ = os_code;
  state_ = os_code == ECONNRESET || os_code == EPIPE ? condition::ended : condition::broken;
}

void control_link::close() noexcept {
  exit_.socket = -1;
  // Not by close() alone: a child may hold a duplicate that keeps the connection up.
  if (socket_ && born_in_ == fork_generation()) ::shutdown(socket_.get(), SHUT_RDWR);
  socket_.reset();
  state_ = condition::closed;
}

}  // namespace chorale::guarding
