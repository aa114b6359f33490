// One send, one receive, or one of each at the same time, as an operation. It ends when both halves have.
#pragma once

#include <chorale/collective/in_flight.hpp>
#include <chorale/transport/pair.hpp>

namespace chorale {

class message_execution final : public in_flight {
 public:
  /// The receive knows its message, which is signed so and fits: takes it, whether it is here already or not.
  void meet(const signature& theirs);
  /// A message that was waited for by its number begins to come.
  void expect(const signature& theirs) noexcept;
  /// That rank has left. False: nothing else is under way, and the operation can end.
  [[nodiscard]] bool goes_on_without(rank_t in_epoch) noexcept;

 protected:
  void begin() override;
  void take_back() noexcept override;
  [[nodiscard]] bool needs(rank_t in_epoch) const noexcept override;
  [[nodiscard]] bool may_wait_for(rank_t in_epoch) const noexcept override;
  void recycle() noexcept override;

 private:
  struct send_state : outgoing {
    message_execution* home = nullptr;
  };
  struct receive_state : posted_receive {
    message_execution* home = nullptr;
  };
  [[nodiscard]] rank_t destination() const noexcept;
  void send();
  void receive();
  void make_ready_for(const signature& theirs) noexcept;
  void send_ended() noexcept;
  void receive_ended() noexcept;
  void half_ended() noexcept;
  send_state send_;
  receive_state receive_;
  bool sending_ = false;
  bool receiving_ = false;
  rank_t gone_ = no_rank;  // who left before its half was done
};

}  // namespace chorale
