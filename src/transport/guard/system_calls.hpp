// The system calls the guard needs that libc does not wrap, and the shapes they want.
//
// Thin, no state, any thread; `futex_wake` is async-signal-safe. All futexes are process-shared.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

namespace chorale::guarding {

using clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC, which the kernel's timeouts use too

using futex_word = std::atomic<std::uint32_t>;
static_assert(futex_word::is_always_lock_free && sizeof(futex_word) == 4);

/// An entry of the kernel's `struct futex_waitv` (linux/futex.h has it from 5.16 on; older headers do not).
struct waited_word {
  std::uint64_t expected = 0;
  std::uint64_t address = 0;
  std::uint32_t flags = 2;  // 32 bits wide, shared
  std::uint32_t reserved = 0;

  waited_word(const futex_word& word, std::uint32_t value) noexcept
      : expected{value}, address{reinterpret_cast<std::uintptr_t>(&word)} {}
  friend bool operator==(const waited_word&, const waited_word&) = default;
};
inline constexpr std::size_t max_waited_words = 128;

/// Wakes everybody who sleeps on `word`. Keeps errno.
void futex_wake(futex_word& word) noexcept;
/// Sleeps while `word` is `expected`; may return early.
void futex_wait(const futex_word& word, std::uint32_t expected) noexcept;
/// Sleeps until one of up to 128 words is woken or differs, or until the deadline. May return early.
void futex_wait_any(std::span<const waited_word> words, std::optional<clock::time_point> deadline) noexcept;
/// False where the kernel lacks futex_waitv or a filter refuses it.
[[nodiscard]] bool can_wait_for_many_futexes() noexcept;

/// −1 where refused.
[[nodiscard]] int pidfd_open(pid_t pid) noexcept;
/// True when the pidfd's process has ended; false for −1.
[[nodiscard]] bool process_ended(int pidfd) noexcept;
/// True when nobody holds the other end of the stream socket any more, read or unread; false for −1.
[[nodiscard]] bool other_end_closed(int socket) noexcept;

}  // namespace chorale::guarding
