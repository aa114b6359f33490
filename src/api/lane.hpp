// lane: a key's own order of calls. Calls on one lane match across ranks in the order in which they were
// made; lanes are independent of each other.
//
// A handle, move-only, for the thread of its communicator's engine; it goes before the communicator does. The
// last handle dropped ends its key for this epoch. Calls on a handle that could not be had end with its
// error.
#pragma once

#include <chorale/api/batch.hpp>
#include <chorale/api/collective_calls.hpp>
#include <chorale/api/ticket.hpp>

#include <array>
#include <concepts>
#include <span>
#include <utility>

namespace chorale {

class communicator;
class planned_call;
class window;
class window_maker;

class lane : public collective_calls<lane> {
 public:
  lane(lane&& other) noexcept
      : inside_{std::exchange(other.inside_, nullptr)},
        state_{other.state_},
        refused_{std::move(other.refused_)} {}
  lane& operator=(lane&& other) noexcept {
    std::swap(inside_, other.inside_);
    std::swap(state_, other.state_);
    std::swap(refused_, other.refused_);
    return *this;
  }
  ~lane();

  /// Any described call takes its place in the order now.
  ticket place(const described_call& described, deadline limit = {});

  /// A lane that ended (a deadline, a stop, a dropped ticket, a mismatch) begins anew: every rank of it
  /// resets it, once, and the await ends when all have. One that has not ended is ended, and so are the calls
  /// of ranks that are still in one. Other handles and plans of the lane stay with what was: take new ones by
  /// its key. When the await fails, the lane has ended again, and resetting it again is the way on.
  [[nodiscard]] ticket reset(deadline limit = {});

  /// A call with fixed buffers, to be made again and again: see planned_call.hpp.
  [[nodiscard]] planned_call plan(const described_call& described);

  /// Several calls, numbered left to right now, started together when the task is awaited. The first failure
  /// is thrown when all have ended. A batch that is never awaited drops its tickets: see ticket.hpp.
  template <std::same_as<described_call>... Calls>
  [[nodiscard]] task<void> batch(const Calls&... calls) {
    const std::array<described_call, sizeof...(calls)> all{calls...};
    return batch(std::span{all});
  }
  [[nodiscard]] task<void> batch(std::span<const described_call> calls);

 private:
  friend class communicator;
  friend class planned_call;
  friend class window;
  friend class window_maker;
  lane(core* inside, lane_state* state) noexcept : inside_{inside}, state_{state} {}
  explicit lane(error refused) noexcept : refused_{std::move(refused)} {}
  /// Why nothing can be called; errc::ok otherwise.
  [[nodiscard]] error unusable() const;
  ticket take_place(const call& valid, deadline limit);
  core* inside_ = nullptr;
  lane_state* state_ = nullptr;
  error refused_;
};

}  // namespace chorale
