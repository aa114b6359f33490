// What a guard tells a communicator, and the one thing it asks it.
//
// The communicator implements this. All calls come from guard threads (watch or control), one at a time per
// membership, while the guard holds its own lock: an implementation writes words and rings its engine's
// doorbell, nothing else. It takes no lock, makes no CUDA call, touches no data ring, and calls no method of
// `membership` except `cause()`. No call comes after `membership`'s destructor has returned.
#pragma once

#include <chorale/transport/guard/revoke.hpp>

#include <cstdint>

namespace chorale {

/// How far a rank has come with one operation, as its guard answers a question.
enum class call_state : std::uint8_t {
  unknown = 0,     ///< not asked yet, or the rank cannot tell
  not_called = 1,  ///< "not called yet": the rank computes elsewhere
  running = 2,     ///< called and unfinished
  finished = 3,    ///< called and done
};

class guard_sink {
 public:
  /// Something ended. With revoke_scope::all exactly once per membership: the first cause. With
  /// revoke_scope::lane once per lane revoke that any rank issued, this one included; two ranks may revoke
  /// the same lane, the first call is the cause. It has been forwarded to the other guards already.
  virtual void on_cause(const revoke& notice) noexcept = 0;

  /// Rank `who` left in good order after operation `last_ticket`. No revoke: operations that need `who`
  /// end with errc::peer_left, others go on. At most once per rank, never for the own rank.
  virtual void on_left(rank_t who, std::uint64_t last_ticket) noexcept {
    static_cast<void>(who);
    static_cast<void>(last_ticket);
  }

  /// A peer that waits for operation `ticket` of `lane` asks whether it was called here. Lock-free.
  [[nodiscard]] virtual call_state state_of(std::uint64_t lane, std::uint64_t ticket) const noexcept {
    static_cast<void>(lane);
    static_cast<void>(ticket);
    return call_state::unknown;
  }

 protected:
  ~guard_sink() = default;
};

}  // namespace chorale
