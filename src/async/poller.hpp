// A source of completions that the engine asks instead of being told: shared-memory rings, GPU flags, verbs
// queues.
#pragma once

#include <cstddef>

namespace chorale {

/// All calls come from the engine's thread.
class poller {
 public:
  enum class arming {
    armed,  ///< nothing pending, and from now on the doorbell rings for new work
    busy,   ///< work came in between: poll again
  };

  /// Handles up to `budget` events by queueing completions on the engine; never blocks, never resumes a
  /// coroutine. Returns how many it handled.
  virtual std::size_t poll(std::size_t budget) noexcept = 0;

  /// Level-like: work that arrived after the last poll makes it `busy`.
  virtual arming arm() noexcept = 0;

  /// The engine is awake again: no doorbell is needed until the next `arm`.
  virtual void disarm() noexcept = 0;

  /// How many operations wait for this poller: the engine spins only while some do.
  [[nodiscard]] virtual std::size_t outstanding() const noexcept = 0;

 protected:
  ~poller() = default;

 private:
  friend class engine;
  poller* next_ = nullptr;
};

}  // namespace chorale
