// An operation between its call and its end: who it is, how it ended, and who wants to know.
//
// Owned by the communicator's pools. It ends exactly once, through `core::finish`; by then nothing refers to
// the user's buffers any more. The handle that the application holds may go first: the communicator then
// adopts the operation and recycles it when it ends. Engine's thread only.
#pragma once

#include <chorale/async/timer.hpp>
#include <chorale/collective/call.hpp>
#include <chorale/collective/completion.hpp>
#include <chorale/transport/guard/membership.hpp>

namespace chorale {

class core;
class group;
class pair;
struct lane_state;

class in_flight {
 public:
  in_flight() noexcept : expiry_{*this} {}
  in_flight(const in_flight&) = delete;
  in_flight& operator=(const in_flight&) = delete;
  virtual ~in_flight() = default;

  [[nodiscard]] bool finished() const noexcept { return finished_; }
  /// Precondition: finished. errc::ok on success.
  [[nodiscard]] const error& outcome() const noexcept { return outcome_; }
  [[nodiscard]] std::uint64_t ticket() const noexcept { return ticket_; }
  [[nodiscard]] const call& what() const noexcept { return what_; }
  /// What every peer has to have called; see `signed_for` for what one of them has to.
  [[nodiscard]] const signature& signed_as() const noexcept { return signature_; }
  /// The same of the half that receives, where a send and a receive are one call.
  [[nodiscard]] signature received_as() const noexcept {
    return what_.sending ? received_signature(what_) : signature_;
  }
  /// What rides on messages to and from `peer`.
  [[nodiscard]] signature signed_for(rank_t peer) const noexcept;
  [[nodiscard]] core& owner() const noexcept { return *core_; }
  [[nodiscard]] lane_state& lane() const noexcept { return *lane_; }
  /// The communicator's ranks: in calls and plans, ranks have the numbers they have there.
  [[nodiscard]] group& among() const noexcept;
  [[nodiscard]] pair& link_to(rank_t member) const noexcept;

  /// What a receive got.
  [[nodiscard]] const received& came() const noexcept { return came_; }
  /// A receive that no message has met: the calls of other ranks say nothing of it yet.
  [[nodiscard]] bool meets_nothing_yet() const noexcept {
    return what_.receiving && what_.receive_number == 0;
  }

  /// Told at the end, unless `release` came first.
  void observe(completion_observer* by) noexcept { observer_ = by; }
  /// The handle goes: a finished operation is recycled, a running one adopted.
  void release() noexcept;

 protected:
  friend class core;
  /// Begins to move data; may finish inside. Everything the base holds is set.
  virtual void begin() = 0;
  /// Takes back every receive and every send: buffers are free afterwards.
  virtual void take_back() noexcept = 0;
  /// Whether something is still expected from, or owed to, a rank of the epoch.
  [[nodiscard]] virtual bool needs(rank_t in_epoch) const noexcept = 0;
  /// Whether a rank's silence may be what it waits for.
  [[nodiscard]] virtual bool may_wait_for(rank_t in_epoch) const noexcept { return needs(in_epoch); }
  /// Back to the pool it came from.
  virtual void recycle() noexcept = 0;

  // Messages.
  /// The rank of the epoch that the message comes from; no_rank while it is open.
  [[nodiscard]] rank_t met() const noexcept { return met_; }
  void forget_send_number() noexcept { what_.send_number = 0; }
  received came_;

 private:
  struct expiry : timer {
    explicit expiry(in_flight& s) noexcept : timer{fired}, self{s} {}
    static void fired(operation& op) noexcept;
    in_flight& self;
  };

  [[nodiscard]] bool is_called(std::uint64_t ticket) const noexcept {
    return ticket_ == ticket ||
           (ticket != 0 && (what_.send_number == ticket || what_.receive_number == ticket));
  }

  core* core_ = nullptr;
  lane_state* lane_ = nullptr;
  std::uint64_t ticket_ = 0;
  rank_t met_ = no_rank;
  call what_;
  signature signature_;
  error outcome_;
  completion_observer* observer_ = nullptr;
  expiry expiry_;
  time_point since_{};
  bool finished_ = false;
  bool adopted_ = false;
  pending_id reported_{};  // what the guard knows it by
  bool is_reported_ = false;
  bool asked_around_ = false;  // has waited so long that it has told everybody what it is
  in_flight* previous_ = nullptr;
  in_flight* next_ = nullptr;
};

}  // namespace chorale
