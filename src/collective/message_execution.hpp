// One send or one receive between two ranks, as an operation.
#pragma once

#include <chorale/collective/in_flight.hpp>
#include <chorale/transport/pair.hpp>

namespace chorale {

class message_execution final : public in_flight {
 protected:
  void begin() override;
  void take_back() noexcept override;
  [[nodiscard]] bool needs(rank_t in_epoch) const noexcept override;
  void recycle() noexcept override;

 private:
  struct send_state : outgoing {
    message_execution* home = nullptr;
  };
  struct receive_state : posted_receive {
    message_execution* home = nullptr;
  };
  send_state send_;
  receive_state receive_;
};

}  // namespace chorale
