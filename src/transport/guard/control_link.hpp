// One control link: whole frames in, whole frames out, over a stream socket that never blocks.
//
// Owns the socket. Used under the guard's lock by the watch and control threads; `waits_to_write` says that
// the control thread should watch for room.
#pragma once

#include <chorale/async/error.hpp>
#include <chorale/transport/guard/dying.hpp>
#include <chorale/transport/guard/frame.hpp>
#include <chorale/transport/guard/owned_fd.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace chorale::guarding {

class control_link {
 public:
  enum class condition {
    open,
    said_goodbye,  ///< its end is no failure
    ended,         ///< end-of-file or reset: no process holds the other end any more
    broken,        ///< the network failed; os_error() says how
    closed,        ///< dealt with
  };

  /// `exit` is the link's entry with the announcer, which learns here whether a frame is half sent.
  control_link(rank_t rank, std::uint64_t id, owned_fd socket, announcer::link& exit,
               std::chrono::nanoseconds timeout) noexcept;
  control_link(const control_link&) = delete;
  control_link& operator=(const control_link&) = delete;
  ~control_link() { close(); }

  [[nodiscard]] rank_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  [[nodiscard]] condition state() const noexcept { return state_; }
  [[nodiscard]] int os_error() const noexcept { return os_error_; }
  [[nodiscard]] bool usable() const noexcept { return state_ == condition::open && !send_failed_; }
  [[nodiscard]] std::size_t queued() const noexcept { return out_.size(); }
  [[nodiscard]] bool waits_to_write() const noexcept { return usable() && !out_.empty(); }

  void send(const frame_bytes& bytes);
  /// Writes what is queued as far as there is room.
  void flush() noexcept;
  /// The next whole frame, if one has arrived; empty also at the end, which `state()` then tells.
  [[nodiscard]] std::optional<frame_bytes> receive() noexcept;
  void note_goodbye() noexcept {
    if (state_ == condition::open) state_ = condition::said_goodbye;
  }
  /// Ends the connection; in a fork child only its own descriptor.
  void close() noexcept;

 private:
  void end_with(int os_code) noexcept;

  rank_t rank_;
  std::uint32_t born_in_;  // fork generation
  std::uint64_t id_;
  owned_fd socket_;
  announcer::link& exit_;
  condition state_ = condition::open;
  int os_error_ = 0;
  bool send_failed_ = false;  // what has arrived is still read: it may be a goodbye
  frame_bytes in_{};
  std::size_t in_size_ = 0;
  std::deque<frame_bytes> out_;
  std::size_t out_sent_ = 0;  // of the first frame in out_
};

}  // namespace chorale::guarding
