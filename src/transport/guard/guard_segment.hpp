// The guard's shared words: one segment per communicator epoch and host.
//
// The bootstrap makes a memfd of `guard_segment::bytes(slots)` bytes (zero-filled), one member calls
// `initialise` before it passes the descriptor on, every member maps it and hands the address to
// `guard::join`; the mapping must outlive the membership. A *slot* is a member's place among the host-mates
// of the segment (0 … slots − 1); ranks of other hosts have none.
//
// Layout, every part on its own 64-byte lines:
//   header | member_line × slots | bell_line × slots | revoke_line × slots
//          | robust_node [victim][watcher] | mailbox [writer][reader]
//
// One writer per line: a member_line, a revoke_line and a row of robust_nodes belong to their slot (the
// kernel marks the robust words of a dead owner), a mailbox's head line and slots to the writer, its tail
// line to the reader. Only `bell_line` has many writers; they add to it atomically. All fields are
// address-free atomics.
#pragma once

#include <chorale/async/result.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace chorale {

/// What a member says of itself; the low byte of `member_line::state`.
enum class member_state : std::uint8_t {
  absent = 0,  ///< has not joined yet
  alive = 1,
  left = 2,    ///< announced its leaving
  dying = 3,   ///< a fatal signal or std::terminate: `detail` in the upper bits says which
  dead = 4,    ///< never written by the member itself: what guards conclude
  silent = 5,  ///< likewise: gave no answer for the peer timeout
};

struct alignas(64) segment_header {
  std::atomic<std::uint64_t> magic;
  std::atomic<std::uint32_t> version;
  std::atomic<std::uint32_t> slots;
  std::atomic<std::uint64_t> epoch;
  std::atomic<std::uint64_t> nonce;
};

/// Written by the member's process alone; read by its host-mates.
struct alignas(64) member_line {
  std::atomic<std::uint32_t> state;  ///< member_state | detail << 8
  std::atomic<std::int32_t> pid;     ///< in the member's own pid namespace: for people, not for kill()
  std::atomic<std::int32_t> rank;
  std::atomic<std::uint32_t> sleeps_in;  ///< guarding::sleep_kind: how its watch thread is woken
  std::atomic<std::uint64_t> epoch;
  std::atomic<std::uint64_t> last_started;  ///< the last ticket its engine started
  std::atomic<std::uint64_t> left_ticket;   ///< valid once state is `left`
};

/// Rung (added to, then woken) by whoever has news for the member's guard.
struct alignas(64) bell_line {
  std::atomic<std::uint32_t> bell;
};

/// The member's first cause with revoke_scope::all. `phase` goes 0 → 1 (claimed by compare-and-swap) → 2
/// (readable) and never back.
struct alignas(64) revoke_line {
  std::atomic<std::uint32_t> phase;
  std::atomic<std::int32_t> cause;
  std::atomic<std::int32_t> culprit;
  std::atomic<std::int32_t> origin;
  std::atomic<std::int32_t> detail;
  std::atomic<std::uint64_t> lane;
  std::atomic<std::uint64_t> ticket;
};

/// An entry of the victim's robust list. `next` is an address in the victim; the kernel finds `word` behind
/// it.
struct robust_node {
  std::atomic<std::uint64_t> next;
  std::atomic<std::uint32_t> word;  ///< the owner's thread id | FUTEX_WAITERS; see robust_words.hpp
  std::uint32_t unused;
};
static_assert(sizeof(robust_node) == 16);

/// A first-in-first-out edge between two host-mates for the frames of frame.hpp.
struct alignas(64) mailbox {
  static constexpr std::size_t capacity = 14;
  struct alignas(64) writer_line {
    std::atomic<std::uint64_t> written;  ///< frames ever
    std::atomic<std::uint32_t> blocked;  ///< 1: frames wait for room; the reader rings after taking some
  };
  struct alignas(64) reader_line {
    std::atomic<std::uint64_t> read;  ///< frames ever
  };
  writer_line head;
  reader_line tail;
  std::array<std::array<std::byte, 64>, capacity> frames;
};
static_assert(sizeof(mailbox) == 1024);

/// A view on a mapped segment: an address and a number, copied freely.
class guard_segment {
 public:
  /// What a segment for so many host-mates occupies; a multiple of 64.
  [[nodiscard]] static std::size_t bytes(std::uint32_t slots) noexcept;
  /// Writes the header into zeroed memory (64-byte aligned, `bytes(slots)` long).
  static guard_segment initialise(void* memory, std::uint32_t slots, std::uint64_t epoch,
                                  std::uint64_t nonce) noexcept;
  /// errc::protocol_error when the memory holds no segment of this version, size, epoch and nonce.
  [[nodiscard]] static result<guard_segment> open(void* memory, std::uint32_t slots, std::uint64_t epoch,
                                                  std::uint64_t nonce);

  [[nodiscard]] std::uint32_t slots() const noexcept { return slots_; }
  [[nodiscard]] segment_header& header() const noexcept;
  [[nodiscard]] member_line& member(std::uint32_t slot) const noexcept;
  [[nodiscard]] bell_line& bell(std::uint32_t slot) const noexcept;
  [[nodiscard]] revoke_line& revoked(std::uint32_t slot) const noexcept;
  [[nodiscard]] robust_node& robust(std::uint32_t victim, std::uint32_t watcher) const noexcept;
  [[nodiscard]] mailbox& mail(std::uint32_t writer, std::uint32_t reader) const noexcept;

 private:
  guard_segment(void* memory, std::uint32_t slots) noexcept
      : base_{static_cast<std::byte*>(memory)}, slots_{slots} {}

  std::byte* base_;
  std::uint32_t slots_;
};

}  // namespace chorale
