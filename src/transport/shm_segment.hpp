// The shared memory into which host-mates write for one rank: one segment per rank and epoch, owned by the
// reader.
//
// A sealed memfd passed over a unix socket, never a name in /dev/shm. Layout, 64-byte lines, one writer each:
//   header | owner line (asleep) | per mate: writer line, reader line, tiny lines, short slots, ring
// A mate writes only its own channel's writer line, tiny lines, slots and ring; the owner writes the reader
// lines and its owner line (whose asleep word a mate clears when it rings the doorbell). Only `ring_bytes`
// varies; it follows from the number of mates so that a rank's rings stay within `segment_budget`.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/transport/frame.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace chorale {

/// Per writer: what the writer publishes.
struct alignas(64) shm_writer_line {
  std::atomic<std::uint64_t> tail;     ///< ring bytes ever written
  std::atomic<std::uint32_t> waiting;  ///< the writer sleeps until there is room
};
/// Per writer: what the reader publishes.
struct alignas(64) shm_reader_line {
  std::atomic<std::uint64_t> head;       ///< ring bytes ever read
  std::atomic<std::uint32_t> tiny_head;  ///< tiny lines ever read
  std::atomic<std::uint32_t> slot_head;  ///< short slots ever read
};
struct alignas(64) shm_owner_line {
  std::atomic<std::uint32_t> asleep;       ///< the owner's engine wants its doorbell rung
  std::atomic<std::uint32_t> heavy_fence;  ///< 1: the owner fences for everybody before it sleeps
};
struct alignas(64) shm_header_line {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t slots;
  std::uint64_t ring_bytes;
};

inline constexpr std::uint32_t tiny_slots = 16;
inline constexpr std::uint32_t short_slots = 32;

/// A short eager message whose arrival its own first line tells: a reader that waits for it fetches two lines
/// where the ring takes three, one after the other.
struct alignas(64) short_slot {
  static constexpr std::size_t capacity = 2048;
  /// Its last word, which signatures leave free, is written last: the slot's number, from 1.
  frame_header header;
  std::byte payload[capacity];
};
static_assert(sizeof(short_slot) == 64 + short_slot::capacity);

/// A view of one writer's part of a mapped segment.
struct shm_channel {
  shm_writer_line* writer;
  shm_reader_line* reader;
  tiny_line* tiny;   ///< tiny_slots of them
  short_slot* slot;  ///< short_slots of them
  std::byte* ring;
  std::uint64_t ring_bytes;
};

/// A view on a mapped segment; copied freely, owns nothing.
class shm_segment {
 public:
  static constexpr std::uint64_t segment_budget = 16u << 20;

  [[nodiscard]] static std::size_t bytes(std::uint32_t slots) noexcept;
  /// By the owner, on zeroed memory, before the descriptor is passed on.
  static shm_segment initialise(void* memory, std::uint32_t slots) noexcept;
  /// errc::protocol_error when the memory holds no segment for so many slots.
  [[nodiscard]] static result<shm_segment> open(void* memory, std::size_t mapped, std::uint32_t slots);

  /// By the owner, while it is awake: from now on its fence before sleeping serves for its mates too, if the
  /// kernel lets it. Only where sleeping is rare: it costs more than many of theirs.
  void fence_for_mates() const noexcept;
  [[nodiscard]] shm_owner_line& owner() const noexcept;
  /// The part that the mate in slot `writer` writes.
  [[nodiscard]] shm_channel channel(std::uint32_t writer) const noexcept;

 private:
  shm_segment(void* memory, std::uint32_t slots) noexcept
      : base_{static_cast<std::byte*>(memory)}, slots_{slots} {}
  [[nodiscard]] static std::uint64_t ring_bytes(std::uint32_t slots) noexcept;
  std::byte* base_;
  std::uint32_t slots_;
};

}  // namespace chorale
