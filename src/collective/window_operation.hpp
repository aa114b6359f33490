// An operation on a window: what was asked, and, where it can not be done at once, its life until it ends.
//
// Owned by the window's pool; ends exactly once, and then nothing refers to the caller's memory any more. The
// handle may go first: the window finishes the operation all the same. Engine's thread only.
#pragma once

#include <chorale/async/timer.hpp>
#include <chorale/collective/completion.hpp>
#include <chorale/collective/window_request.hpp>
#include <chorale/transport/guard/membership.hpp>

#include <cstdint>

namespace chorale {

class window_side;

class window_operation {
 public:
  explicit window_operation(window_side& home) noexcept : home_{home}, expiry_{*this} {}
  window_operation(const window_operation&) = delete;
  window_operation& operator=(const window_operation&) = delete;

  [[nodiscard]] bool finished() const noexcept { return finished_; }
  /// Precondition: finished. errc::ok on success.
  [[nodiscard]] const error& outcome() const noexcept { return outcome_; }
  /// Of a wait that succeeded: the counter.
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }
  void observe(completion_observer* by) noexcept { observer_ = by; }
  /// The handle goes.
  void release() noexcept;
  /// Ends it early; what is under way may still reach the target.
  void stop(errc why) noexcept;

 private:
  friend class window_side;
  friend class window_operations;
  struct expiry : timer {
    explicit expiry(window_operation& s) noexcept : timer{fired}, self{s} {}
    static void fired(operation& op) noexcept { static_cast<expiry&>(op).self.stop(errc::timed_out); }
    window_operation& self;
  };

  window_side& home_;
  window_request what_;
  error outcome_;
  std::uint64_t value_ = 0;
  completion_observer* observer_ = nullptr;
  expiry expiry_;
  bool finished_ = true;
  bool adopted_ = false;
  bool is_reported_ = false;
  pending_id reported_{};       // what the guard knows it by
  time_point since_{};          // seen waiting first
  std::uint64_t number_ = 0;    // among those to its target; 0: not begun
  std::uint64_t progress_ = 0;  // bytes handed over, or got
  class window_operations* list_ = nullptr;
  window_operation* previous_ = nullptr;
  window_operation* next_ = nullptr;
};

/// First in, first out, and out of the middle.
class window_operations {
 public:
  [[nodiscard]] window_operation* first() const noexcept { return first_; }
  [[nodiscard]] static window_operation* after(const window_operation& op) noexcept { return op.next_; }
  void append(window_operation& op) noexcept {
    op.list_ = this;
    op.previous_ = last_;
    op.next_ = nullptr;
    (last_ ? last_->next_ : first_) = &op;
    last_ = &op;
  }
  static void remove(window_operation& op) noexcept {
    window_operations* const from = std::exchange(op.list_, nullptr);
    if (!from) return;
    (op.previous_ ? op.previous_->next_ : from->first_) = op.next_;
    (op.next_ ? op.next_->previous_ : from->last_) = op.previous_;
  }

 private:
  window_operation* first_ = nullptr;
  window_operation* last_ = nullptr;
};

}  // namespace chorale
