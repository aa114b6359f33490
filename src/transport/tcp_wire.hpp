// A wire over a connected stream socket.
//
// Bytes move by non-blocking system calls on the engine's thread, first at once and then whenever a readiness
// request at the engine's backend completes, so that no kernel request ever refers to user memory and a
// cancelled operation has nothing to wait for. A sender stays within a window that the receiver grants as it
// consumes: a receiver that computes for a while fills no socket buffer, and TCP_USER_TIMEOUT can mean a lost
// host and nothing else. Padding follows each payload up to `frame_alignment`.
#pragma once

#include <chorale/async/engine.hpp>
#include <chorale/transport/socket.hpp>
#include <chorale/transport/wire.hpp>

#include <memory>
#include <vector>

namespace chorale {

class tcp_wire final : public wire {
 public:
  /// Bytes that may be under way and unread, in each direction: both sides use the same.
  static constexpr std::uint64_t window = 1u << 20;

  /// `socket` is connected, non-blocking and past its hello. `loop` outlives the wire.
  tcp_wire(engine& loop, unique_fd socket);
  tcp_wire(const tcp_wire&) = delete;
  tcp_wire& operator=(const tcp_wire&) = delete;
  ~tcp_wire() override;

  pushed push(outgoing& m) noexcept override;
  [[nodiscard]] bool in_frame() const noexcept override { return frame_owner_ != nullptr; }
  void abandon(outgoing& m) noexcept override;
  std::size_t poll(frame_receiver& to, std::size_t budget) noexcept override;
  [[nodiscard]] bool quiet() const noexcept override;
  void forget_target(const std::byte* begin, const std::byte* end) noexcept override;
  bool arm(bool wants_room) noexcept override;
  void disarm() noexcept override {}
  [[nodiscard]] const char* name() const noexcept override { return "tcp"; }

 private:
  struct readiness;

  // Sending: header_, then payload, then padding, as one frame.
  void begin_frame(outgoing& m) noexcept;
  bool flush() noexcept;
  void grant() noexcept;

  // Receiving.
  bool fill(frame_receiver& to) noexcept;
  bool next_frame(frame_receiver& to) noexcept;
  bool take_payload(frame_receiver& to) noexcept;
  void offer_window() noexcept;
  void fail(frame_receiver& to, error why) noexcept;

  engine& loop_;
  std::shared_ptr<unique_fd> socket_;
  readiness* readable_;
  readiness* writable_;
  bool failed_ = false;
  int send_error_ = 0;

  frame_header header_;  // of the frame being sent
  const std::byte* payload_ = nullptr;
  std::uint64_t frame_bytes_ = 0;  // header, payload and padding of the frame being sent; 0 between frames
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t frame_sent_ = 0;
  outgoing* frame_owner_ = nullptr;
  std::unique_ptr<std::byte[]> orphan_;  // payload of a frame whose owner went away
  std::uint64_t window_left_ = window;
  std::uint64_t to_grant_ = 0;

  std::unique_ptr<std::byte[]> buffer_;  // raw bytes as they came; aligned by `begin_`
  std::byte* begin_;
  std::size_t read_at_ = 0;
  std::size_t filled_ = 0;
  frame_header incoming_;
  bool in_payload_ = false;
  bool forgotten_ = false;         // its target was withdrawn: the rest is read and thrown away
  std::uint64_t payload_got_ = 0;  // of the incoming frame's padded payload
  std::byte* direct_ = nullptr;    // where it goes, if not through `assembly_`
  std::byte padding_[frame_alignment];
  std::vector<frame_header> assembly_;  // aligned storage for payloads that are handed over whole
};

}  // namespace chorale
