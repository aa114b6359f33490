// A wire of the simulated network: what tcp does to frames, without a kernel and without a clock of its own.
//
// Data is cut into frames of the network's choosing; a sender may be stopped in the middle of a frame; a
// delivery may come in two parts, the first of which goes straight to the receiver's memory. Engine's thread.
#pragma once

#include <chorale/collective/simulated_network.hpp>

namespace chorale {

class simulated_wire final : public wire {
 public:
  simulated_wire(simulated_network& net, simulated_link& out, simulated_link& in) noexcept
      : net_{net}, out_{out}, in_{in} {}

  pushed push(outgoing& m) noexcept override;
  [[nodiscard]] bool in_frame() const noexcept override { return begun_by_ != nullptr; }
  void abandon(outgoing& m) noexcept override;
  std::size_t poll(frame_receiver& to, std::size_t budget) noexcept override;
  void forget_target(const std::byte* begin, const std::byte* end) noexcept override;
  bool arm(bool wants_room) noexcept override;
  void disarm() noexcept override {}
  [[nodiscard]] const char* name() const noexcept override { return "simulated"; }

 private:
  [[nodiscard]] bool can_send() const noexcept;
  [[nodiscard]] bool has_slot() const noexcept;
  void stall() noexcept;
  void begin(outgoing& m) noexcept;
  void commit() noexcept;
  bool deliver(frame_receiver& to) noexcept;

  simulated_network& net_;
  simulated_link& out_;
  simulated_link& in_;
  time_point stalled_until_{};
  outgoing* begun_by_ = nullptr;   // whose frame lies in the slot at `tail`, in part
  std::uint64_t begun_bytes_ = 0;  // of the payload, copied

  bool first_part_here_ = false;  // of the frame at `head`
  std::byte* direct_ = nullptr;   // where that frame's payload goes, if not to the receiver as a whole
  bool told_end_ = false;
};

}  // namespace chorale
