#include <chorale/transport/tcp_wire.hpp>

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

namespace chorale {
namespace {

constexpr std::size_t buffer_bytes = 256 * 1024;
constexpr std::uint64_t header_bytes = sizeof(frame_header);
/// Wire-level frame: `size` bytes of window come back. Never seen above the wire, and always allowed to go
/// out.
constexpr auto window_grant = static_cast<frame_kind>(64);
alignas(frame_alignment) constexpr std::byte zeroes[frame_alignment] = {};

}  // namespace

/// A readiness request. It lives until the kernel has given it back, which may be after the wire is gone.
struct tcp_wire::readiness : io_operation {
  readiness(std::shared_ptr<unique_fd> on, int events) : io_operation{completed}, socket{std::move(on)} {
    kind = io_kind::poll;
    fd = socket->get();
    flags = events;
  }
  static void completed(operation& op) noexcept {
    auto& self = static_cast<readiness&>(op);
    self.pending = false;
    if (self.orphaned) delete &self;
  }
  void request(engine& loop) noexcept {
    if (std::exchange(pending, true)) return;
    loop.io().submit(*this);
  }
  void release(engine& loop) noexcept {
    if (!pending) {
      delete this;
      return;
    }
    orphaned = true;
    loop.io().cancel(*this);
  }
  std::shared_ptr<unique_fd> socket;
  bool pending = false;
  bool orphaned = false;
};

tcp_wire::tcp_wire(engine& loop, unique_fd socket)
    : loop_{loop},
      socket_{std::make_shared<unique_fd>(std::move(socket))},
      readable_{new readiness{socket_, POLLIN}},
      writable_{new readiness{socket_, POLLOUT}},
      buffer_{std::make_unique<std::byte[]>(buffer_bytes + frame_alignment)},
      assembly_(frame_limit / header_bytes) {
  void* at = buffer_.get();
  std::size_t space = buffer_bytes + frame_alignment;
  begin_ = static_cast<std::byte*>(std::align(frame_alignment, buffer_bytes, at, space));
  // Room for the whole window, and for what the kernel adds to each segment.
  const int bytes = static_cast<int>(2 * window);
  ::setsockopt(socket_->get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  ::setsockopt(socket_->get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

tcp_wire::~tcp_wire() {
  readable_->release(loop_);
  writable_->release(loop_);
}

// Sending.

void tcp_wire::begin_frame(outgoing& m) noexcept {
  header_ = m.header;
  payload_bytes_ = carries_payload(header_.kind) ? std::min(m.size - m.sent, frame_limit) : 0;
  if (carries_payload(header_.kind)) header_.size = payload_bytes_;
  payload_ = m.data + m.sent;
  frame_bytes_ = header_bytes + padded(payload_bytes_);
  frame_sent_ = 0;
  frame_owner_ = &m;
}

/// Sends what is left of the frame; true when it is out.
bool tcp_wire::flush() noexcept {
  while (frame_sent_ != frame_bytes_) {
    std::array<iovec, 3> parts{};
    std::size_t count = 0;
    const auto add = [&](const void* base, std::uint64_t begin, std::uint64_t length) {
      const std::uint64_t skip = frame_sent_ > begin ? std::min(frame_sent_ - begin, length) : 0;
      if (skip == length) return;
      parts[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(base)) + skip, length - skip};
    };
    add(&header_, 0, header_bytes);
    add(payload_, header_bytes, payload_bytes_);
    add(zeroes, header_bytes + payload_bytes_, padded(payload_bytes_) - payload_bytes_);
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket_->get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) send_error_ = errno;
      return false;
    }
    frame_sent_ += static_cast<std::uint64_t>(sent);
  }
  frame_bytes_ = 0;
  return true;
}

void tcp_wire::grant() noexcept {
  header_ = {};
  header_.kind = window_grant;
  header_.size = std::exchange(to_grant_, 0);
  payload_bytes_ = 0;
  payload_ = nullptr;
  frame_bytes_ = header_bytes;
  frame_sent_ = 0;
  frame_owner_ = nullptr;
}

wire::pushed tcp_wire::push(outgoing& m) noexcept {
  if (failed_ || send_error_ != 0) return pushed::blocked;
  if (frame_bytes_ != 0 && frame_owner_ != &m) {  // a grant, or the rest of an abandoned frame
    if (!flush()) return pushed::blocked;
    orphan_.reset();
  }
  offer_window();
  if (frame_bytes_ != 0 && frame_owner_ != &m) return pushed::blocked;
  if (frame_bytes_ == 0) {
    const std::uint64_t payload = carries_payload(m.header.kind) ? std::min(m.size - m.sent, frame_limit) : 0;
    const std::uint64_t needed = header_bytes + padded(payload);
    if (needed > window_left_) return pushed::blocked;
    window_left_ -= needed;
    begin_frame(m);
  }
  if (!flush()) return pushed::blocked;
  frame_owner_ = nullptr;
  m.sent += payload_bytes_;
  offer_window();  // it may have had to wait for this frame
  return m.sent == m.size || !carries_payload(m.header.kind) ? pushed::done : pushed::more;
}

void tcp_wire::abandon(outgoing& m) noexcept {
  if (frame_owner_ != &m) return;
  frame_owner_ = nullptr;
  if (payload_bytes_ != 0) {
    orphan_ = std::make_unique<std::byte[]>(payload_bytes_);
    std::memcpy(orphan_.get(), payload_, payload_bytes_);
    payload_ = orphan_.get();
  }
}

// Receiving.

void tcp_wire::fail(frame_receiver& to, error why) noexcept {
  failed_ = true;
  to.on_broken(std::move(why));
}

/// Reads once: into the direct target first, if there is one, then into the buffer. False: nothing there.
bool tcp_wire::fill(frame_receiver& to) noexcept {
  if (read_at_ == filled_) {
    read_at_ = filled_ = 0;
  } else if (buffer_bytes - filled_ < header_bytes) {
    // A part of a header at the end of the buffer: positions keep their alignment when moved to the start.
    const std::size_t rest = filled_ - read_at_;
    std::memmove(begin_, begin_ + read_at_, rest);
    read_at_ = 0;
    filled_ = rest;
  }
  std::array<iovec, 3> parts{};
  std::size_t count = 0;
  std::uint64_t wanted = 0;
  if (in_payload_ && read_at_ == filled_) {
    // Padding is read apart, so that the buffer always starts at a header and keeps its alignment.
    wanted = padded(incoming_.size) - payload_got_;
    std::byte* into = direct_ ? direct_ : reinterpret_cast<std::byte*>(assembly_.data());
    if (payload_got_ < incoming_.size) parts[count++] = {into + payload_got_, incoming_.size - payload_got_};
    const std::uint64_t padding = std::min(wanted, padded(incoming_.size) - incoming_.size);
    if (padding != 0) parts[count++] = {padding_, padding};
  }
  parts[count++] = {begin_ + filled_, buffer_bytes - filled_};
  ssize_t got;
  do got = ::readv(socket_->get(), parts.data(), static_cast<int>(count));
  while (got < 0 && errno == EINTR);
  if (got == 0) return fail(to, error{errc::link_lost, "the peer closed the connection"}), false;
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    error why{errc::link_lost, std::string{"receiving failed: "} + std::strerror(errno)};
    return fail(to, std::move(why)), false;
  }
  const std::uint64_t straight = std::min(static_cast<std::uint64_t>(got), wanted);
  payload_got_ += straight;
  filled_ += static_cast<std::size_t>(got) - straight;
  return true;
}

void tcp_wire::offer_window() noexcept {
  if (to_grant_ < window / 4 || frame_bytes_ != 0) return;
  grant();
  flush();  // the rest, if any, goes before the next push
}

/// Moves buffered bytes to where the payload belongs; true when the frame is whole.
bool tcp_wire::take_payload(frame_receiver& to) noexcept {
  const std::uint64_t whole = padded(incoming_.size);
  const std::size_t there = filled_ - read_at_;
  const std::byte* payload = nullptr;
  if (payload_got_ == 0 && !direct_ && there >= whole) {
    payload = begin_ + read_at_;  // all here, and aligned: no copy
    read_at_ += whole;
  } else {
    std::byte* into = direct_ ? direct_ : reinterpret_cast<std::byte*>(assembly_.data());
    if (payload_got_ < incoming_.size) {
      const std::uint64_t part = std::min<std::uint64_t>(incoming_.size - payload_got_, there);
      std::memcpy(into + payload_got_, begin_ + read_at_, part);
      payload_got_ += part;
      read_at_ += part;
    }
    const std::uint64_t padding = std::min<std::uint64_t>(whole - payload_got_, filled_ - read_at_);
    if (payload_got_ >= incoming_.size) {
      payload_got_ += padding;
      read_at_ += padding;
    }
    if (payload_got_ != whole) return false;
    payload = direct_ ? nullptr : into;
  }
  in_payload_ = false;
  direct_ = nullptr;
  if (!std::exchange(forgotten_, false)) to.on_frame(incoming_, payload);
  to_grant_ += header_bytes + whole;
  return true;
}

/// Handles one frame from the buffer; false when it is not complete.
bool tcp_wire::next_frame(frame_receiver& to) noexcept {
  if (in_payload_) return take_payload(to);
  if (filled_ - read_at_ < header_bytes) return false;
  std::memcpy(&incoming_, begin_ + read_at_, header_bytes);
  read_at_ += header_bytes;
  if (incoming_.kind == window_grant) {
    if (incoming_.size > window - window_left_)
      return fail(to, error{errc::protocol_error, "more window was granted than there is"}), false;
    window_left_ += incoming_.size;
    return true;
  }
  if (const char* fault = fault_of(incoming_)) return fail(to, error{errc::protocol_error, fault}), false;
  if (!carries_payload(incoming_.kind)) {
    to.on_frame(incoming_, nullptr);
    to_grant_ += header_bytes;
    return true;
  }
  in_payload_ = true;
  payload_got_ = 0;
  direct_ = incoming_.kind == frame_kind::data ? to.direct_target(incoming_) : nullptr;
  return take_payload(to);
}

void tcp_wire::forget_target(const std::byte* begin, const std::byte* end) noexcept {
  if (!direct_ || direct_ < begin || direct_ >= end) return;
  direct_ = nullptr;  // the rest goes to `assembly_`; what came before it is gone, so nobody gets the frame
  forgotten_ = true;
}

bool tcp_wire::quiet() const noexcept { return readable_->pending && send_error_ == 0 && frame_bytes_ == 0; }

std::size_t tcp_wire::poll(frame_receiver& to, std::size_t budget) noexcept {
  std::size_t moved = 0;
  if (failed_) return 0;
  if (send_error_ == 0 && frame_bytes_ != 0 && !frame_owner_ && flush()) orphan_.reset();
  while (moved < budget && !failed_) {
    if (next_frame(to))
      ++moved;
    else if (failed_ || !fill(to))
      break;
    offer_window();
  }
  // Also when nothing came: a frame of our own may have stood in the way of the grant that the peer waits
  // for.
  if (send_error_ == 0) offer_window();
  // Last, because a peer that left may have sent all it had before.
  if (send_error_ != 0 && moved < budget && !failed_) {
    fail(to, error{errc::link_lost, std::string{"sending failed: "} + std::strerror(send_error_)});
    ++moved;
  }
  return moved;
}

bool tcp_wire::arm(bool wants_room) noexcept {
  if (failed_) return true;
  if (send_error_ != 0 || (!in_payload_ && filled_ - read_at_ >= header_bytes)) return false;
  readable_->request(loop_);
  // Without window it is a grant we wait for, which makes the socket readable.
  const bool socket_full = frame_bytes_ != 0;
  if (socket_full && (wants_room || !frame_owner_)) writable_->request(loop_);
  return true;
}

}  // namespace chorale
