// The two mailboxes between this member and one host-mate: frames out, frames in, in order, none lost.
//
// What finds no room waits here until the mate has read; what may be lost (questions and answers, which are
// repeated) is dropped instead. Used under the guard's lock. The reader's side bounds what it believes of the
// writer's counter, for the writer is another process.
#pragma once

#include <chorale/transport/guard/frame.hpp>
#include <chorale/transport/guard/guard_segment.hpp>

#include <deque>
#include <optional>

namespace chorale::guarding {

/// Whether a frame that finds no room waits or is given up.
enum class when_full { wait, drop };

class mailbox_edge {
 public:
  mailbox_edge(mailbox& out, mailbox& in) noexcept : out_{&out}, in_{&in} {}

  /// False when it was dropped.
  bool post(const frame_bytes& bytes, when_full policy);
  /// Moves waiting frames on as far as there is room; true when some moved.
  bool flush();
  [[nodiscard]] std::optional<frame_bytes> take() noexcept;
  /// After taking frames: the mate waits for room and wants to be rung.
  [[nodiscard]] bool writer_waits() const noexcept { return in_->head.blocked.load() != 0; }

 private:
  bool put(const frame_bytes& bytes) noexcept;

  mailbox* out_;
  mailbox* in_;
  std::deque<frame_bytes> waiting_;
};

}  // namespace chorale::guarding
