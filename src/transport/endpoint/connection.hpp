// One proved connection between two endpoints as a state machine: frames in, frames out, two windows each
// way.
//
// Everything is done with non-blocking calls when the kernel reports readiness, so no request to the kernel
// ever refers to a caller's memory: a frame can be withdrawn at any moment (the rest of a half-sent one is
// copied), and the connection can go at any moment. It reads whatever comes, at most as much as the windows
// it granted, so a peer that is slow to take messages never looks like a dead one.
//
// Owned by the endpoint that hears its events; one engine's thread. `events` are called from readiness
// callbacks or from within `send`, `withdraw`, `give_back`, `leave`; they must not destroy the connection.
#pragma once

#include <chorale/async/engine.hpp>
#include <chorale/async/error.hpp>
#include <chorale/transport/endpoint/frame.hpp>
#include <chorale/transport/socket.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace chorale::endpoints {

/// A frame on its way out. Its storage and what it points to belong to the sender until `ended` is called,
/// once, or until it was withdrawn.
struct outgoing_frame {
  using function = void (*)(outgoing_frame&, const error* why_not) noexcept;
  explicit outgoing_frame(function on_end) noexcept : ended{on_end} {}
  outgoing_frame(const outgoing_frame&) = delete;
  outgoing_frame& operator=(const outgoing_frame&) = delete;

  frame_header header;  ///< dimensions, head and size agree with what follows
  std::array<std::uint64_t, most_dimensions> shape{};
  const std::byte* head = nullptr;
  const std::byte* values = nullptr;

 private:
  friend class connection;
  function ended;
  outgoing_frame* next = nullptr;
  bool queued = false;
};

struct received_frame {
  frame_header header;
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> head;
  std::unique_ptr<std::byte[]> values;
};

class connection_events {
 public:
  virtual ~connection_events() = default;
  /// Returns why no correct peer sends this, or null.
  virtual const char* on_frame(received_frame&& frame) noexcept = 0;
  /// The connection is over: errc::peer_left, peer_lost, link_lost, protocol_error, or errc::ok after
  /// `leave`.
  virtual void on_end(const error& why) noexcept = 0;
  /// Keeps the owner, and with it the connection, alive over a callback.
  [[nodiscard]] virtual std::shared_ptr<void> keep() noexcept = 0;
};

class connection {
 public:
  /// `whom` names the peer in errors. `receive_window`: bytes accepted before they are given back, for each
  /// kind of window; `send_window`: what the peer accepts.
  connection(engine& loop, unique_fd socket, std::string whom, std::uint64_t receive_window,
             std::uint64_t send_window, connection_events& events);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  /// Says goodbye if that is possible at once; not in a fork child, whose parent goes on with the socket.
  ~connection();

  /// Queues the frame, and sends what the socket takes now. Precondition: not over, cost ≤ largest().
  void send(outgoing_frame& frame) noexcept;
  /// Takes a frame back that has not ended; `ended` is not called. True if nothing of it will arrive.
  bool withdraw(outgoing_frame& frame) noexcept;
  /// What was received is out of this endpoint's memory.
  void give_back(window_kind window, std::uint64_t cost) noexcept;
  /// Sends what is queued, then goodbye; ends when the peer has closed, with errc::ok.
  void leave() noexcept;
  /// Ends at once.
  void end(error why, errc told) noexcept;

  [[nodiscard]] bool over() const noexcept { return over_; }
  [[nodiscard]] bool leaving() const noexcept { return leaving_; }
  /// The largest cost of one frame that can be sent: half of the window, so that credit can be returned in
  /// lumps of up to half.
  [[nodiscard]] std::uint64_t largest() const noexcept { return send_window_ / 2; }
  [[nodiscard]] const std::string& whom() const noexcept { return whom_; }

 private:
  struct readiness;
  enum class stage : std::uint8_t { header, preamble, values };
  struct queue {
    outgoing_frame* first = nullptr;
    outgoing_frame* last = nullptr;
  };

  void on_ready() noexcept;
  void read_some() noexcept;
  void consume(std::span<const std::byte> bytes) noexcept;
  std::size_t take_piece(std::span<const std::byte> bytes) noexcept;
  void begin_body() noexcept;
  void finish_frame() noexcept;
  void take_credit() noexcept;
  void discard() noexcept;
  void close() noexcept;
  void ended_by_kernel(int os_code) noexcept;

  void adopt_rest() noexcept;
  void pump() noexcept;
  bool choose() noexcept;
  bool begin_queued(window_kind window) noexcept;
  void begin(outgoing_frame& frame) noexcept;
  void begin_control(const frame_header& h) noexcept;
  bool flush() noexcept;
  void finish_sending() noexcept;
  void fail_queued(const error& why) noexcept;
  [[nodiscard]] bool sending() const noexcept { return left_ != 0; }

  engine& loop_;
  pid_t owner_;
  std::shared_ptr<unique_fd> socket_;
  std::string whom_;
  connection_events& events_;
  readiness* readable_;
  readiness* writable_;

  // Receiving.
  std::uint64_t receive_window_;
  std::array<std::uint64_t, window_kinds> held_{};       // received, not given back by the endpoint
  std::array<std::uint64_t, window_kinds> to_return_{};  // given back, the peer not told yet
  stage stage_ = stage::header;
  std::array<std::byte, header_bytes> header_{};
  std::size_t got_ = 0;  // of the current stage
  received_frame incoming_;
  std::vector<std::byte> preamble_;

  // Sending.
  std::uint64_t send_window_;
  std::array<std::uint64_t, window_kinds> in_use_{};
  std::array<queue, window_kinds> queues_{};
  outgoing_frame* current_ = nullptr;  // null while a control frame or an orphan is being sent
  std::array<std::byte, header_bytes + 8 * most_dimensions> opening_{};
  std::array<std::span<const std::byte>, 3> parts_{};  // what is left of the frame being sent
  std::size_t left_ = 0;
  std::vector<std::byte> orphan_;
  int send_error_ = 0;
  bool leaving_ = false;
  bool bye_begun_ = false;
  bool bye_sent_ = false;
  bool over_ = false;
};

}  // namespace chorale::endpoints
