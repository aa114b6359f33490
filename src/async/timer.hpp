// One deadline in an engine's heap. Owned by whoever waits for it; must be disarmed or have fired before it
// goes.
#pragma once

#include <chorale/async/clock.hpp>
#include <chorale/async/operation.hpp>

#include <cstddef>
#include <vector>

namespace chorale {

struct timer : operation {
  explicit timer(function fired) noexcept : operation{fired} {}
  [[nodiscard]] bool armed() const noexcept { return slot_ != idle; }
  [[nodiscard]] time_point when() const noexcept { return when_; }

 private:
  friend class timer_heap;
  static constexpr std::size_t idle = static_cast<std::size_t>(-1);
  time_point when_ = never;
  std::size_t slot_ = idle;
};

/// Binary heap of armed timers, earliest first. Its array grows to the largest number armed at once and
/// stays.
class timer_heap {
 public:
  [[nodiscard]] time_point earliest() const noexcept { return heap_.empty() ? never : heap_.front()->when_; }
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  void arm(timer& t, time_point when);
  /// No effect on a timer that is not armed.
  void disarm(timer& t) noexcept;
  /// Runs every timer due at `now`, each disarmed first, and returns how many there were. They run inside
  /// this call, so that whoever owns a timer may destroy it at any moment when it is not armed.
  std::size_t expire(time_point now) noexcept;

 private:
  void place(std::size_t slot, timer* t) noexcept;
  void sift_up(std::size_t slot, timer* t) noexcept;
  void sift_down(std::size_t slot, timer* t) noexcept;
  std::vector<timer*> heap_;
};

}  // namespace chorale
