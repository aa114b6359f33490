// Endpoints: messages, tensors and requests between processes that are not ranks of one job.
//
//   chorale::task<> serve() {
//     auto service = co_await chorale::listen("unix:@echo");
//     for (;;) {
//       auto asked = co_await service.next_request();
//       co_await asked.reply(asked.message().bytes());
//     }
//   }
//   chorale::task<> use() {
//     auto peer = co_await chorale::connect("unix:@echo");
//     auto answer = co_await peer.call(1, "hello"sv);
//     co_await peer.close();
//   }
//
// All of it belongs to the engine inside which it was made, and to that engine's thread. Every await throws
// `failure` (or gives a result under `as_result`), heeds stop requests and deadlines (`with_timeout`), and
// ends when its peer does: errc::peer_left after a goodbye, peer_lost when the process has gone, link_lost
// when the network has, each naming the peer. A peer's end is no other peer's business.
//
// A connection made by `connect` or taken by `accept` ends with its last handle; a handle is cheap to copy.
// Connections that nobody has accepted belong to their listener. Bytes received and not taken are bounded by
// `byte_limit` per peer; beyond it the other side's sends wait. docs/endpoints.md shows each use,
// docs/wire.md every byte.
#pragma once

#include <chorale/api/endpoint_message.hpp>
#include <chorale/async/clock.hpp>
#include <chorale/async/task.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace chorale {

class endpoint_hub;
struct listener_state;

struct endpoint_options {
  std::string service;  ///< both sides give the same name
  std::string name;     ///< what the other side calls this one in its errors; empty: its address
  /// Both sides prove that they know it. Needed on every address that other hosts can reach.
  std::string secret;
  /// Memory for what a peer has sent and this side has not taken yet: so much for messages and requests, and
  /// as much for answers. One message may take half of it. At least 16 KiB.
  std::size_t byte_limit = std::size_t{64} << 20;
  /// From the first byte of a connection to the end of its hello; strangers are dropped then.
  duration hello_limit = std::chrono::seconds{5};
  /// tcp: a host that acknowledges nothing for this long is lost.
  duration silence = std::chrono::seconds{30};
  /// connect: goes on trying for this long while nobody listens there.
  duration patience = duration::zero();
  /// listen: peers at once.
  std::size_t most_peers = 1024;
};

class peer_request;

class peer_handle {
 public:
  peer_handle() = default;
  explicit peer_handle(std::shared_ptr<endpoint_peer> state) noexcept : state_{std::move(state)} {}
  explicit operator bool() const noexcept { return state_ != nullptr; }
  friend bool operator==(const peer_handle&, const peer_handle&) = default;

  /// "name (address)", as errors call it.
  [[nodiscard]] const std::string& whom() const noexcept;
  /// The name the peer gave itself.
  [[nodiscard]] const std::string& name() const noexcept;
  /// Why the connection is over; errc::ok while it is not.
  [[nodiscard]] const error& cause() const noexcept;
  /// The largest message this peer takes, with head and shape.
  [[nodiscard]] std::size_t largest_message() const noexcept;

  /// Ends when the message is with the kernel; waits while the peer's limit is used up. Messages of one peer
  /// arrive in the order of the calls. Stopped before its first byte went out, it never arrives; later,
  /// whole.
  [[nodiscard]] task<void> send(std::uint64_t tag, payload what) const;
  /// The next message; those that came before the peer ended still come.
  [[nodiscard]] task<peer_message> recv() const;
  /// The next message as a tensor, copied to `into` if it fits there. A message of another type stays where
  /// it is, with errc::mismatch.
  template <element T>
  [[nodiscard]] task<received_tensor<T>> recv_tensor(std::span<T> into) const {
    task<peer_message> next = recv_of(dtype_of<T>);
    received_tensor<T> got;
    got.message = co_await std::move(next);
    got.values = got.message.template values<T>();
    if (got.values.size() <= into.size()) {
      std::ranges::copy(got.values, into.begin());
      got.values = into.first(got.values.size());
      got.in_place = true;
    }
    co_return got;
  }
  /// A request and its answer; as many at once as the peer's limit allows. Throws what the peer refused with.
  [[nodiscard]] task<peer_message> call(std::uint64_t tag, payload what) const;
  [[nodiscard]] task<peer_request> next_request() const;

  /// Ends with `cause()` when the connection is over.
  [[nodiscard]] task<error> ended() const;
  /// Sends what is still queued, says goodbye, and waits up to five seconds for the peer to have heard it.
  /// Operations under way on this side end with errc::invalid_state.
  [[nodiscard]] task<void> close() const;

 private:
  [[nodiscard]] task<peer_message> recv_of(dtype wanted) const;
  std::shared_ptr<endpoint_peer> state_;
};

/// A request under way at the side that answers. Dropping it unanswered refuses it with errc::dropped; what
/// it took of the caller's window is free again when it has been answered.
class peer_request {
 public:
  peer_request(peer_request&& other) noexcept;
  peer_request& operator=(peer_request&& other) noexcept;
  ~peer_request();

  [[nodiscard]] const peer_message& message() const noexcept { return message_; }
  [[nodiscard]] peer_handle from() const noexcept { return peer_handle{from_}; }
  [[nodiscard]] std::uint64_t tag() const noexcept { return message_.tag(); }
  /// Ends when the answer is with the kernel. The request stays a valid object, answered.
  [[nodiscard]] task<void> reply(payload answer);
  /// The caller's await throws this error: code and detail travel.
  void refuse(const error& why) noexcept;

 private:
  friend class endpoint_peer;
  peer_request(std::shared_ptr<endpoint_peer> from, peer_message message, std::uint64_t id,
               std::uint64_t cost) noexcept;
  std::shared_ptr<endpoint_peer> from_;
  peer_message message_;
  std::uint64_t id_ = 0;
  std::uint64_t cost_ = 0;
  bool unanswered_ = false;
};

/// A message and who sent it.
struct arrival {
  peer_handle from;
  peer_message message;
};

class listener {
 public:
  explicit listener(std::shared_ptr<listener_state> state) noexcept : state_{std::move(state)} {}
  listener(listener&&) noexcept = default;
  listener& operator=(listener&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  /// Peers that were not accepted are left; a stranger half way through its hello is dropped.
  ~listener() { close(); }

  /// Where it listens, in the form `connect` takes; the port is known where 0 was asked for.
  [[nodiscard]] std::string where() const;
  /// Peers connected now.
  [[nodiscard]] std::size_t peers() const noexcept;
  /// Connections that were dropped before the end of their hello.
  [[nodiscard]] std::uint64_t strangers() const noexcept;

  /// The next peer that proved itself; from then on its life is in the handle.
  [[nodiscard]] task<peer_handle> accept() const;
  /// The next message of any peer, accepted or not: one peer after the other, however much one of them sends.
  [[nodiscard]] task<arrival> recv_any() const;
  /// The next request of any peer, likewise.
  [[nodiscard]] task<peer_request> next_request() const;
  /// Takes no more connections; waiting calls end with errc::invalid_state.
  void close() noexcept;

 private:
  std::shared_ptr<listener_state> state_;
};

/// Throws errc::invalid_argument for an address or options that can not be used (no secret where other hosts
/// can reach it), errc::system_error with the call that failed. A host name is resolved within the call,
/// which blocks the engine for as long.
[[nodiscard]] task<listener> listen(std::string address, endpoint_options options);
/// Throws errc::secret_refused, invalid_argument (another service), invalid_state (the service is full),
/// timed_out (no complete hello within `hello_limit`), protocol_error, system_error (nobody listens), …
[[nodiscard]] task<peer_handle> connect(std::string address, endpoint_options options);

// Overloads and no default arguments: g++ 12 destroys an aggregate made inside an await expression twice.
[[nodiscard]] inline task<listener> listen(std::string address) {
  return listen(std::move(address), endpoint_options{});
}
[[nodiscard]] inline task<peer_handle> connect(std::string address) {
  return connect(std::move(address), endpoint_options{});
}

}  // namespace chorale
