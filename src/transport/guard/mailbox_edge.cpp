#include <chorale/transport/guard/mailbox_edge.hpp>

namespace chorale::guarding {

bool mailbox_edge::put(const frame_bytes& bytes) noexcept {
  const auto written = out_->head.written.load();
  if (written - out_->tail.read.load() >= mailbox::capacity) return false;
  out_->frames[written % mailbox::capacity] = bytes;
  out_->head.written.store(written + 1);
  return true;
}

bool mailbox_edge::post(const frame_bytes& bytes, when_full policy) {
  if (waiting_.empty() && put(bytes)) return true;
  if (policy == when_full::drop) return false;
  waiting_.push_back(bytes);
  flush();
  return true;
}

bool mailbox_edge::flush() {
  if (waiting_.empty()) return false;
  // Set before the last look at the room: either this sees the reader's progress or the reader sees the mark.
  out_->head.blocked.store(1);
  bool moved = false;
  while (!waiting_.empty() && put(waiting_.front())) {
    waiting_.pop_front();
    moved = true;
  }
  if (waiting_.empty()) out_->head.blocked.store(0);
  return moved;
}

std::optional<frame_bytes> mailbox_edge::take() noexcept {
  const auto read = in_->tail.read.load();
  const auto available = in_->head.written.load() - read;
  if (available == 0 || available > mailbox::capacity) return std::nullopt;
  const frame_bytes bytes = in_->frames[read % mailbox::capacity];
  in_->tail.read.store(read + 1);
  return bytes;
}

}  // namespace chorale::guarding
