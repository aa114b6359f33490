// How a sleeping watch thread is woken: a futex word, and an eventfd where it must poll.
//
// The word changes first, so that a sleeper that looks at it last before it sleeps misses nothing. Ringing is
// async-signal-safe and may happen on any thread of any process that maps the word.
#pragma once

#include <chorale/transport/guard/guard_segment.hpp>
#include <chorale/transport/guard/owned_fd.hpp>
#include <chorale/transport/guard/system_calls.hpp>

namespace chorale::guarding {

/// `member_line::sleeps_in`.
enum class sleep_kind : std::uint32_t {
  futex = 0,  ///< in futex_waitv: waking the word is enough
  poll = 1,   ///< in ppoll: the eventfd must be written too
};

/// Adds one to an eventfd; nothing for −1.
void signal_event(int event_fd) noexcept;
/// Empties an eventfd; nothing for −1.
void drain_event(int event_fd) noexcept;

/// Rings a host-mate's bell.
void ring(bell_line& bell, const member_line& sleeper, int bell_fd) noexcept;

/// The process's own bell, for its threads.
class doorbell {
 public:
  /// Throws `failure` when no eventfd is to be had.
  doorbell();
  void ring() noexcept;
  [[nodiscard]] const futex_word& word() const noexcept { return word_; }
  [[nodiscard]] int event_fd() const noexcept { return event_.get(); }
  void sleeps_in(sleep_kind kind) noexcept { kind_.store(static_cast<std::uint32_t>(kind)); }

 private:
  futex_word word_{0};
  std::atomic<std::uint32_t> kind_{0};
  owned_fd event_;
};

}  // namespace chorale::guarding
