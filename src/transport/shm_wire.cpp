#include <chorale/transport/asymmetric_fence.hpp>
#include <chorale/transport/shm_wire.hpp>
#include <chorale/transport/streaming_copy.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace chorale {
namespace {

constexpr std::uint64_t header_bytes = sizeof(frame_header);
static_assert(offsetof(frame_header, call) + offsetof(signature, reserved) + sizeof(signature::reserved) ==
              header_bytes);
/// A header of this kind says: go on at the start of the ring.
constexpr auto skip = static_cast<frame_kind>(0);
/// Data goes in pieces of this size, so that the reader works on one while the next is written.
constexpr std::uint64_t piece_bytes = 32 * 1024;
/// From here on payloads go past the caches.
constexpr std::uint64_t streamed_bytes = 3 * 1024;

}  // namespace

shm_wire::shm_wire(const shm_wire_setup& setup) noexcept
    : in_{setup.own.channel(setup.peer_slot)},
      out_{setup.peers.channel(setup.own_slot)},
      own_line_{&setup.own.owner()},
      peer_line_{&setup.peers.owner()},
      peer_doorbell_{setup.peer_doorbell},
      registered_{heavy_fences_work()} {}

std::uint64_t shm_wire::room() noexcept { return out_.ring_bytes - (tail_ - cached_head_); }

void shm_wire::publish(std::uint64_t bytes) noexcept {
  tail_ += bytes;
  out_.writer->tail.store(tail_, std::memory_order_release);
}

void shm_wire::ring_if_asleep() noexcept {
  // Pairs with the one before `arm`: either the peer sees what was published, or we see that it sleeps.
  frequent_fence(light());
  if (peer_line_->asleep.load(std::memory_order_relaxed) == 0) return;
  if (peer_line_->asleep.exchange(0, std::memory_order_relaxed) == 0) return;
  const std::uint64_t one = 1;
  // A full counter (EAGAIN) rings all the same, and a peer that is gone is the guard's business.
  [[maybe_unused]] const auto written = ::write(peer_doorbell_, &one, sizeof one);
}

short_slot* shm_wire::free_slot() noexcept {
  if (cached_head_ != tail_) cached_head_ = out_.reader->head.load(std::memory_order_acquire);
  if (cached_head_ != tail_) return nullptr;
  if (slots_written_ - cached_slot_head_ >= short_slots) {
    cached_slot_head_ = out_.reader->slot_head.load(std::memory_order_acquire);
    if (slots_written_ - cached_slot_head_ >= short_slots) return nullptr;
  }
  return &out_.slot[slots_written_ % short_slots];
}

bool shm_wire::push_short(outgoing& m) noexcept {
  short_slot* slot = free_slot();
  if (!slot) return false;
  if (m.size != 0) std::memcpy(slot->payload, m.data, m.size);
  std::memcpy(static_cast<void*>(&slot->header), &m.header, header_bytes - sizeof m.header.call.reserved);
  std::atomic_ref{slot->header.call.reserved}.store(++slots_written_, std::memory_order_release);
  ring_if_asleep();
  m.sent = m.size;
  return true;
}

wire::pushed shm_wire::push(outgoing& m) noexcept {
  if (m.header.kind == frame_kind::eager && m.size <= short_slot::capacity && push_short(m))
    return pushed::done;
  const bool split = m.header.kind == frame_kind::data;
  std::uint64_t payload = carries_payload(m.header.kind) ? m.size - m.sent : 0;
  if (split) payload = std::min(payload, piece_bytes);
  const std::uint64_t needed = header_bytes + padded(payload);
  const std::uint64_t at = tail_ % out_.ring_bytes;
  const std::uint64_t to_end = out_.ring_bytes - at;
  const std::uint64_t skipped = to_end < needed ? to_end : 0;
  if (room() < needed + skipped) {
    cached_head_ = out_.reader->head.load(std::memory_order_acquire);
    if (room() < needed + skipped) return pushed::blocked;
  }
  if (skipped != 0) {
    reinterpret_cast<frame_header*>(out_.ring + at)->kind = skip;
    tail_ += skipped;
  }
  std::byte* to = out_.ring + tail_ % out_.ring_bytes;
  if (!carries_payload(m.header.kind)) {
    std::memcpy(to, &m.header, header_bytes);
  } else {
    frame_header header = m.header;
    header.size = payload;
    if (payload >= streamed_bytes) {
      stream_line(to, &header);
      stream_copy(to + header_bytes, m.data + m.sent, payload);
      streaming_fence();
    } else {
      std::memcpy(to, &header, header_bytes);
      if (payload != 0) std::memcpy(to + header_bytes, m.data + m.sent, payload);
    }
    m.sent += payload;
  }
  publish(needed);
  ring_if_asleep();
  return m.sent == m.size || !carries_payload(m.header.kind) ? pushed::done : pushed::more;
}

bool shm_wire::push_tiny(const tiny_line& line) noexcept {
  if (tiny_written_ - cached_tiny_head_ >= tiny_slots) {
    cached_tiny_head_ = out_.reader->tiny_head.load(std::memory_order_acquire);
    if (tiny_written_ - cached_tiny_head_ >= tiny_slots) return false;
  }
  tiny_line& slot = out_.tiny[tiny_written_ % tiny_slots];
  std::memcpy(static_cast<void*>(&slot), &line, offsetof(tiny_line, stamp));
  const std::uint64_t stamp = tiny_line::make_stamp(++tiny_written_, line.channel(), line.size());
  std::atomic_ref{slot.stamp}.store(stamp, std::memory_order_release);
  ring_if_asleep();
  return true;
}

std::size_t shm_wire::poll_tiny(frame_receiver& to, std::size_t budget) noexcept {
  std::size_t moved = 0;
  for (; moved < budget; ++moved) {
    const tiny_line* line = peek_tiny();
    if (!line) break;
    to.on_tiny(*line);
    pop_tiny();
  }
  return moved;
}

void shm_wire::fail(frame_receiver& to, const char* how) noexcept {
  failed_ = true;
  to.on_broken(error{errc::protocol_error, how});
}

void shm_wire::wake_waiting_writer() noexcept {
  if (in_.writer->waiting.load(std::memory_order_relaxed) != 0) ring_if_asleep();
}

short_slot* shm_wire::full_slot() const noexcept {
  short_slot& slot = in_.slot[slots_read_ % short_slots];
  const std::uint64_t number = std::atomic_ref{slot.header.call.reserved}.load(std::memory_order_acquire);
  return number == slots_read_ + 1 ? &slot : nullptr;
}

std::size_t shm_wire::poll_slots(frame_receiver& to, std::size_t budget) noexcept {
  std::size_t moved = 0;
  for (; moved < budget; ++moved) {
    const short_slot* slot = full_slot();
    if (!slot) break;
    frame_header header = slot->header;  // a copy: the peer could still change it
    header.call.reserved = 0;
    if (const char* fault = fault_of(header)) return fail(to, fault), moved;
    if (header.kind != frame_kind::eager || header.size > short_slot::capacity)
      return fail(to, "a slot holds what belongs into the ring"), moved;
    to.on_frame(header, slot->payload);
    in_.reader->slot_head.store(++slots_read_, std::memory_order_release);
    __builtin_prefetch(&in_.slot[slots_read_ % short_slots]);
    __builtin_prefetch(&in_.slot[slots_read_ % short_slots].payload);
  }
  return moved;
}

std::size_t shm_wire::poll_ring(frame_receiver& to, std::size_t budget) noexcept {
  std::size_t moved = 0;
  while (moved < budget) {
    const std::uint64_t available = in_.writer->tail.load(std::memory_order_acquire) - head_;
    if (available == 0 || full_slot()) break;  // a slot that is full by now was filled before
    const std::uint64_t at = head_ % in_.ring_bytes;
    if (available > in_.ring_bytes || available < header_bytes)
      return fail(to, "the ring claims what was never written"), moved;
    // A copy: the peer could still change it.
    const frame_header header = *reinterpret_cast<const frame_header*>(in_.ring + at);
    if (header.kind == skip) {
      if (at == 0) return fail(to, "a ring is skipped whole"), moved;
      head_ += in_.ring_bytes - at;
    } else {
      if (const char* fault = fault_of(header)) return fail(to, fault), moved;
      const std::uint64_t payload = carries_payload(header.kind) ? padded(header.size) : 0;
      if (header_bytes + payload > available || at + header_bytes + payload > in_.ring_bytes)
        return fail(to, "a frame reaches beyond what was written"), moved;
      to.on_frame(header, in_.ring + at + header_bytes);
      head_ += header_bytes + payload;
      ++moved;
    }
    in_.reader->head.store(head_, std::memory_order_release);
  }
  if (moved != 0) {
    frequent_fence(light());  // pairs with the one before `arm`, for a writer that waits for room
    wake_waiting_writer();
  }
  return moved;
}

std::size_t shm_wire::poll(frame_receiver& to, std::size_t budget) noexcept {
  if (failed_) return 0;
  const std::size_t moved = poll_tiny(to, budget) + poll_slots(to, budget);
  return failed_ ? moved : moved + poll_ring(to, budget);
}

bool shm_wire::announce_sleep(bool wants_room) noexcept {
  own_line_->asleep.store(1, std::memory_order_relaxed);
  if (wants_room) out_.writer->waiting.store(1, std::memory_order_relaxed);
  announced_ = true;
  return own_line_->heavy_fence.load(std::memory_order_relaxed) != 0;
}

bool shm_wire::arm(bool wants_room) noexcept {
  if (!announced_ && announce_sleep(wants_room) && !heavy_fence()) return fence_refused(), false;
  announced_ = false;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (failed_) return true;
  if (peek_tiny() || full_slot() || in_.writer->tail.load(std::memory_order_acquire) != head_) return false;
  return !wants_room || out_.reader->head.load(std::memory_order_acquire) == cached_head_;
}

void shm_wire::fence_refused() noexcept {
  announced_ = false;
  own_line_->heavy_fence.store(0, std::memory_order_relaxed);
}

void shm_wire::disarm() noexcept {
  announced_ = false;
  own_line_->asleep.store(0, std::memory_order_relaxed);
  out_.writer->waiting.store(0, std::memory_order_relaxed);
}

}  // namespace chorale
