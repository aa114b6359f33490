// A wire through shared memory: a byte ring for frames, slots for short ones, and lines for
// tiny messages, in each direction.
//
// Frames keep their order: a slot is only written when everything in the ring was read, and the ring is only
// read when no slot is full. Both sides only ever add to counters of their own. A side that sleeps says so in
// its segment and is woken through its doorbell, an eventfd the other holds. Nothing a peer writes is
// trusted: a frame that does not fit what was published breaks the wire.
#pragma once

#include <chorale/transport/shm_segment.hpp>
#include <chorale/transport/wire.hpp>

namespace chorale {

struct shm_wire_setup {
  shm_segment own;          ///< where the peer writes
  shm_segment peers;        ///< where we write
  std::uint32_t own_slot;   ///< our channel in `peers`
  std::uint32_t peer_slot;  ///< the peer's channel in `own`
  int peer_doorbell;        ///< eventfd, owned by the caller, outlives the wire
};

class shm_wire final : public wire {
 public:
  explicit shm_wire(const shm_wire_setup& setup) noexcept;

  pushed push(outgoing& m) noexcept override;
  [[nodiscard]] bool in_frame() const noexcept override { return false; }
  void abandon(outgoing&) noexcept override {}
  bool push_tiny(const tiny_line& line) noexcept override;
  std::size_t poll(frame_receiver& to, std::size_t budget) noexcept override;
  void forget_target(const std::byte*, const std::byte*) noexcept override {}
  bool announce_sleep(bool wants_room) noexcept override;
  void fence_refused() noexcept override;
  bool arm(bool wants_room) noexcept override;
  void disarm() noexcept override;
  [[nodiscard]] const char* name() const noexcept override { return "shm"; }

  /// The next tiny line if it has arrived. `pop_tiny` frees it.
  [[nodiscard]] const tiny_line* peek_tiny() const noexcept {
    const tiny_line& line = in_.tiny[tiny_read_ % tiny_slots];
    const std::uint64_t stamp =
        std::atomic_ref{const_cast<std::uint64_t&>(line.stamp)}.load(std::memory_order_acquire);
    return static_cast<std::uint32_t>(stamp) == tiny_read_ + 1 ? &line : nullptr;
  }
  void pop_tiny() noexcept {
    in_.reader->tiny_head.store(++tiny_read_, std::memory_order_release);
    __builtin_prefetch(&in_.tiny[tiny_read_ % tiny_slots]);  // a peer that is ahead has written it
  }
  /// Wakes the peer if it sleeps. After `push_tiny`; `push` does it by itself.
  void ring_if_asleep() noexcept;

 private:
  /// The peer's fence before it sleeps serves for ours.
  [[nodiscard]] bool light() const noexcept {
    return registered_ && peer_line_->heavy_fence.load(std::memory_order_relaxed) == 1;
  }
  [[nodiscard]] std::uint64_t room() noexcept;
  [[nodiscard]] short_slot* free_slot() noexcept;
  [[nodiscard]] short_slot* full_slot() const noexcept;
  bool push_short(outgoing& m) noexcept;
  void publish(std::uint64_t bytes) noexcept;
  std::size_t poll_tiny(frame_receiver& to, std::size_t budget) noexcept;
  std::size_t poll_slots(frame_receiver& to, std::size_t budget) noexcept;
  std::size_t poll_ring(frame_receiver& to, std::size_t budget) noexcept;
  void wake_waiting_writer() noexcept;
  void fail(frame_receiver& to, const char* how) noexcept;

  shm_channel in_;
  shm_channel out_;
  shm_owner_line* own_line_;
  shm_owner_line* peer_line_;
  int peer_doorbell_;
  bool registered_;                // for the fences of others
  bool announced_ = false;         // between `announce_sleep` and `arm`
  std::uint64_t tail_ = 0;         // written
  std::uint64_t cached_head_ = 0;  // what the peer had read when we last looked
  std::uint64_t head_ = 0;         // read
  std::uint32_t tiny_written_ = 0;
  std::uint32_t cached_tiny_head_ = 0;
  std::uint32_t tiny_read_ = 0;
  std::uint32_t slots_written_ = 0;
  std::uint32_t cached_slot_head_ = 0;
  std::uint32_t slots_read_ = 0;
  bool failed_ = false;
};

}  // namespace chorale
