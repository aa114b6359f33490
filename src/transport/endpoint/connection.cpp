#include <chorale/transport/endpoint/connection.hpp>

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace chorale::endpoints {
namespace {

constexpr std::size_t staging_bytes = 64 * 1024;
/// Reads or writes per turn of the engine: one busy peer must not keep the others waiting.
constexpr int pieces_per_turn = 16;

constexpr std::size_t index_of(window_kind w) noexcept { return static_cast<std::size_t>(w); }

bool would_block(int code) noexcept { return code == EAGAIN || code == EWOULDBLOCK; }

}  // namespace

/// A request for readiness. It lives until the kernel has given it back, which may be after the connection is
/// gone.
struct connection::readiness : io_operation {
  readiness(connection& owner, std::shared_ptr<unique_fd> on, int events)
      : io_operation{completed}, of{&owner}, socket{std::move(on)} {
    kind = io_kind::poll;
    fd = socket->get();
    flags = events;
  }
  static void completed(operation& op) noexcept {
    auto& self = static_cast<readiness&>(op);
    self.pending = false;
    if (self.of)
      self.of->on_ready();
    else
      delete &self;
  }
  void request() noexcept {
    if (std::exchange(pending, true)) return;
    of->loop_.io().submit(*this);
  }
  void release() noexcept {
    engine& loop = std::exchange(of, nullptr)->loop_;
    if (pending)
      loop.io().cancel(*this);
    else
      delete this;
  }
  connection* of;
  std::shared_ptr<unique_fd> socket;
  bool pending = false;
};

connection::connection(engine& loop, unique_fd socket, std::string whom, std::uint64_t receive_window,
                       std::uint64_t send_window, connection_events& events)
    : loop_{loop},
      owner_{::getpid()},
      socket_{std::make_shared<unique_fd>(std::move(socket))},
      whom_{std::move(whom)},
      events_{events},
      readable_{new readiness{*this, socket_, POLLIN}},
      writable_{new readiness{*this, socket_, POLLOUT}},
      receive_window_{receive_window},
      send_window_{send_window} {
  readable_->request();
}

connection::~connection() {
  assert(!queues_[0].first && !queues_[1].first && "an endpoint goes while frames wait to be sent");
  if (!over_ && ::getpid() != owner_) return;
  if (!over_) {
    over_ = true;
    if (!sending() && send_error_ == 0 && !bye_begun_) {
      begin_control({.kind = frame_kind::bye});
      flush();
    }
    // Closing with unread bytes would reset the connection and could take the goodbye with it.
    ::shutdown(socket_->get(), SHUT_WR);
    discard();
    close();
  }
}

/// The descriptor goes as soon as the kernel has given the requests back.
void connection::close() noexcept {
  ::shutdown(socket_->get(), SHUT_RDWR);
  socket_.reset();
  readable_->release();
  writable_->release();
}

void connection::on_ready() noexcept {
  if (over_) return;
  const std::shared_ptr<void> owner = events_.keep();
  read_some();
  if (!over_) pump();
  if (!over_) readable_->request();
}

// Receiving.

void connection::read_some() noexcept {
  alignas(16) std::array<std::byte, staging_bytes> staging;
  for (int piece = 0; piece < pieces_per_turn && !over_; ++piece) {
    std::array<iovec, 2> parts{};
    int count = 0;
    std::size_t straight = 0;
    if (stage_ == stage::values && !bye_sent_) {
      straight = incoming_.header.size - got_;
      parts[static_cast<std::size_t>(count++)] = {incoming_.values.get() + got_, straight};
    }
    parts[static_cast<std::size_t>(count++)] = {staging.data(), staging.size()};
    const std::size_t asked = straight + staging.size();
    const ssize_t got = ::readv(socket_->get(), parts.data(), count);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_block(errno)) {
      // A peer that has gone may have sent all it had before: only now is its loss the last word.
      if (send_error_ != 0) ended_by_kernel(send_error_);
      return;
    }
    if (got <= 0) return ended_by_kernel(got == 0 ? 0 : errno);
    if (bye_sent_) continue;  // only the end is waited for
    const auto bytes = static_cast<std::size_t>(got);
    straight = std::min(straight, bytes);
    got_ += straight;
    if (straight != 0 && got_ == incoming_.header.size) finish_frame();
    consume(std::span{staging}.first(bytes - straight));
    if (bytes < asked && send_error_ == 0) return;
  }
}

void connection::consume(std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty() && !over_) bytes = bytes.subspan(take_piece(bytes));
}

/// Takes what the current stage wants of `bytes`; returns how many those were.
std::size_t connection::take_piece(std::span<const std::byte> bytes) noexcept {
  std::byte* into = nullptr;
  std::size_t whole = 0;
  switch (stage_) {
    case stage::header:
      into = header_.data();
      whole = header_bytes;
      break;
    case stage::preamble:
      into = preamble_.data();
      whole = preamble_.size();
      break;
    case stage::values:
      into = incoming_.values.get();
      whole = incoming_.header.size;
      break;
  }
  const std::size_t taken = std::min(bytes.size(), whole - got_);
  std::memcpy(into + got_, bytes.data(), taken);
  got_ += taken;
  if (got_ != whole) return taken;
  if (stage_ == stage::header) {
    begin_body();
  } else if (stage_ == stage::preamble && incoming_.header.size != 0) {
    stage_ = stage::values;
    got_ = 0;
  } else {
    finish_frame();
  }
  return taken;
}

/// The header is whole: judge it, then make room for what it announces.
void connection::begin_body() noexcept {
  incoming_ = {};
  incoming_.header = decode(header_);
  const frame_header& h = incoming_.header;
  got_ = 0;
  const auto window = index_of(window_of(h.kind));
  const std::uint64_t used = held_[window] + to_return_[window];
  if (const char* fault = fault_of(h, receive_window_ - used))
    return end(error{errc::protocol_error, whom_ + " sent " + fault}, errc::protocol_error);
  if (h.kind == frame_kind::credit) return take_credit();
  if (h.kind == frame_kind::bye) {
    if (h.code == 0) return end(error{errc::peer_left, whom_ + " has closed the connection"}, errc::ok);
    const auto cause = static_cast<errc>(h.code);
    return end(error{errc::peer_left, whom_ + " ended the connection: " + std::string{name_of(cause)}},
               errc::ok);
  }
  held_[window] += cost_of(h);
  try {
    preamble_.resize(preamble_bytes(h));
    if (h.size != 0) incoming_.values = std::make_unique_for_overwrite<std::byte[]>(h.size);
  } catch (const std::bad_alloc&) {
    return end(error{errc::out_of_memory,
                     "no room for a message of " + std::to_string(h.size) + " bytes from " + whom_},
               errc::out_of_memory);
  }
  stage_ = preamble_.empty() ? stage::values : stage::preamble;
  if (preamble_.empty() && h.size == 0) finish_frame();
}

void connection::finish_frame() noexcept {
  stage_ = stage::header;
  got_ = 0;
  received_frame whole = std::move(incoming_);
  const std::span<const std::byte> preamble{preamble_};
  const std::size_t shape_bytes = 8 * std::size_t{whole.header.dimensions};
  for (std::size_t i = 0; i < whole.header.dimensions; ++i) {
    std::uint64_t extent = 0;
    for (std::size_t b = 0; b < 8; ++b)
      extent |= std::to_integer<std::uint64_t>(preamble[8 * i + b]) << (8 * b);
    whole.shape.push_back(extent);
  }
  whole.head.assign(preamble.begin() + static_cast<std::ptrdiff_t>(shape_bytes), preamble.end());
  if (const char* fault = events_.on_frame(std::move(whole)))
    return end(error{errc::protocol_error, whom_ + " sent " + fault}, errc::protocol_error);
  if (over_) return;
  // More is held now: what was kept back for a larger lump may have to go.
  for (const window_kind w : {window_kind::messages, window_kind::replies}) give_back(w, 0);
}

void connection::take_credit() noexcept {
  stage_ = stage::header;
  const std::array<std::uint64_t, window_kinds> returned{incoming_.header.tag, incoming_.header.id};
  for (std::size_t w = 0; w < window_kinds; ++w) {
    if (returned[w] > in_use_[w] || returned[0] + returned[1] == 0)
      return end(error{errc::protocol_error, whom_ + " returned more window than there was"},
                 errc::protocol_error);
    in_use_[w] -= returned[w];
  }
  pump();
}

/// Reads and forgets what is there.
void connection::discard() noexcept {
  alignas(16) std::array<std::byte, staging_bytes> staging;
  for (int piece = 0; piece < pieces_per_turn; ++piece)
    if (::recv(socket_->get(), staging.data(), staging.size(), MSG_DONTWAIT) <= 0) return;
}

/// The kernel says that nothing more comes: 0 for an end of file.
void connection::ended_by_kernel(int os_code) noexcept {
  if (bye_sent_) return end(error{}, errc::ok);
  // Only a living kernel on the other side closes or resets: then it is the process that has gone.
  const bool closed = os_code == 0 || os_code == ECONNRESET || os_code == EPIPE;
  if (closed) return end(error{errc::peer_lost, whom_ + " has gone without a goodbye"}, errc::ok);
  end(error{errc::link_lost, whom_ + ": " + std::strerror(os_code)}, errc::ok);
}

void connection::end(error why, errc told) noexcept {
  if (over_) return;
  over_ = true;
  const std::shared_ptr<void> owner = events_.keep();
  if (told != errc::ok && !sending() && send_error_ == 0 && !bye_begun_) {
    begin_control({.kind = frame_kind::bye, .code = static_cast<std::uint16_t>(told)});
    flush();
    ::shutdown(socket_->get(), SHUT_WR);
    discard();
  }
  close();
  incoming_ = {};
  left_ = 0;
  fail_queued(why ? why : error{errc::invalid_state, "the connection to " + whom_ + " was closed here"});
  events_.on_end(why);
}

void connection::fail_queued(const error& why) noexcept {
  const auto fail = [&](outgoing_frame& frame) {
    frame.queued = false;
    frame.ended(frame, &why);
  };
  if (outgoing_frame* const half_sent = std::exchange(current_, nullptr)) fail(*half_sent);
  for (queue& q : queues_) {
    while (q.first) {
      outgoing_frame& frame = *q.first;
      q.first = frame.next;
      fail(frame);
    }
    q.last = nullptr;
  }
}

void connection::give_back(window_kind window, std::uint64_t cost) noexcept {
  if (over_ || bye_begun_) return;
  const auto w = index_of(window);
  assert(held_[w] >= cost && "more was given back than had been received");
  held_[w] -= cost;
  to_return_[w] += cost;
  // In lumps, unless the peer may be waiting: it can be blocked only while more than half its window is used.
  if (to_return_[w] != 0 && held_[w] + to_return_[w] >= receive_window_ / 2) pump();
}

// Sending.

void connection::send(outgoing_frame& frame) noexcept {
  assert(!over_ && !leaving_ && cost_of(frame.header) <= largest());
  queue& q = queues_[index_of(window_of(frame.header.kind))];
  frame.next = nullptr;
  frame.queued = true;
  (q.last ? q.last->next : q.first) = &frame;
  q.last = &frame;
  pump();
}

bool connection::withdraw(outgoing_frame& frame) noexcept {
  if (current_ == &frame) {
    // Half of it is out; the rest must follow, from memory of our own.
    current_ = nullptr;
    adopt_rest();
    return false;
  }
  if (!std::exchange(frame.queued, false)) return false;
  queue& q = queues_[index_of(window_of(frame.header.kind))];
  outgoing_frame* before = nullptr;
  for (outgoing_frame* at = q.first; at; before = at, at = at->next) {
    if (at != &frame) continue;
    (before ? before->next : q.first) = at->next;
    if (q.last == at) q.last = before;
    break;
  }
  pump();  // one behind it may fit
  return true;
}

void connection::adopt_rest() noexcept {
  try {
    std::vector<std::byte> rest;
    rest.reserve(left_);
    for (const auto part : parts_) rest.insert(rest.end(), part.begin(), part.end());
    orphan_ = std::move(rest);
    parts_ = {std::span<const std::byte>{orphan_}, {}, {}};
  } catch (const std::bad_alloc&) {
    end(error{errc::out_of_memory, "no room for the rest of a withdrawn message to " + whom_}, errc::ok);
  }
}

void connection::leave() noexcept {
  if (over_ || std::exchange(leaving_, true)) return;
  pump();
}

void connection::pump() noexcept {
  for (int piece = 0; piece < pieces_per_turn; ++piece) {
    if (over_ || send_error_ != 0) return;
    if (!sending() && !choose()) return;
    if (!flush()) break;
    finish_sending();
  }
  if (!over_ && send_error_ == 0) writable_->request();
}

/// Decides what goes out next; false when nothing may.
bool connection::choose() noexcept {
  if (bye_begun_) return false;
  bool due = false;
  for (std::size_t w = 0; w < window_kinds; ++w)
    due = due || (to_return_[w] != 0 && held_[w] + to_return_[w] >= receive_window_ / 2);
  if (due) {
    begin_control({.kind = frame_kind::credit,
                   .tag = std::exchange(to_return_[0], 0),
                   .id = std::exchange(to_return_[1], 0)});
    return true;
  }
  if (begin_queued(window_kind::replies) || begin_queued(window_kind::messages)) return true;
  if (!leaving_ || queues_[0].first || queues_[1].first) return false;
  bye_begun_ = true;
  begin_control({.kind = frame_kind::bye});
  return true;
}

bool connection::begin_queued(window_kind window) noexcept {
  queue& q = queues_[index_of(window)];
  if (!q.first) return false;
  outgoing_frame& frame = *q.first;
  const std::uint64_t cost = cost_of(frame.header);
  if (in_use_[index_of(window)] + cost > send_window_) return false;
  in_use_[index_of(window)] += cost;
  q.first = frame.next;
  if (!q.first) q.last = nullptr;
  begin(frame);
  return true;
}

void connection::begin(outgoing_frame& frame) noexcept {
  const auto header = encode(frame.header);
  std::byte* at = std::copy(header.begin(), header.end(), opening_.data());
  for (std::size_t i = 0; i < frame.header.dimensions; ++i)
    for (std::size_t b = 0; b < 8; ++b) *at++ = static_cast<std::byte>(frame.shape[i] >> (8 * b));
  current_ = &frame;
  parts_ = {std::span<const std::byte>{opening_.data(), at},
            {frame.head, frame.header.head},
            {frame.values, frame.header.size}};
  left_ = parts_[0].size() + parts_[1].size() + parts_[2].size();
}

void connection::begin_control(const frame_header& h) noexcept {
  const auto header = encode(h);
  std::copy(header.begin(), header.end(), opening_.data());
  current_ = nullptr;
  parts_ = {std::span<const std::byte>{opening_.data(), header_bytes}, {}, {}};
  left_ = header_bytes;
}

/// Sends what is left of the current frame; true when it is out.
bool connection::flush() noexcept {
  while (left_ != 0) {
    std::array<iovec, 3> vectors{};
    std::size_t count = 0;
    for (const auto part : parts_)
      if (!part.empty()) vectors[count++] = {const_cast<std::byte*>(part.data()), part.size()};
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket_->get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (!would_block(errno)) send_error_ = errno;
      return false;
    }
    auto gone = static_cast<std::size_t>(sent);
    left_ -= gone;
    for (auto& part : parts_) {
      const std::size_t of_this = std::min(gone, part.size());
      part = part.subspan(of_this);
      gone -= of_this;
    }
  }
  return true;
}

void connection::finish_sending() noexcept {
  orphan_ = {};
  if (bye_begun_) {
    bye_sent_ = true;
    ::shutdown(socket_->get(), SHUT_WR);
    return;
  }
  outgoing_frame* const frame = std::exchange(current_, nullptr);
  if (!frame) return;
  frame->queued = false;
  frame->ended(*frame, nullptr);
}

}  // namespace chorale::endpoints
