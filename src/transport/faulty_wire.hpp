// A wire that misbehaves within its contract: the fault injector of the conformance suites.
//
// Wraps any wire. By a seed it finds no room where there is some, asks for another message first, polls late
// or in small bites, has no line free, and at a given moment cuts the link. It never loses, invents or
// reorders a frame: whoever fails over it would one day fail over a busy network. Thread: its engine's.
#pragma once

#include <chorale/transport/wire.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>

namespace chorale {

/// Chances are out of a thousand.
struct fault_plan {
  std::uint64_t seed = 1;
  std::uint32_t blocked = 0;     ///< a push finds no room
  std::uint32_t again = 0;       ///< between frames, a push moves nothing and lets another message go first
  std::uint32_t late = 0;        ///< a poll sees nothing
  std::uint32_t short_poll = 0;  ///< a poll delivers one frame and stops
  std::uint32_t no_line = 0;     ///< no line for a tiny message
  std::uint64_t cut_after = 0;   ///< the link breaks at this poll; 0: never
};

class faulty_wire final : public wire, private frame_receiver {
 public:
  faulty_wire(std::unique_ptr<wire> carrier, const fault_plan& plan) noexcept
      : carrier_{std::move(carrier)},
        plan_{plan},
        dice_{static_cast<std::minstd_rand::result_type>(plan.seed)} {}

  pushed push(outgoing& m) noexcept override {
    if (broken_ || holds_back(plan_.blocked)) return pushed::blocked;
    if (!carrier_->in_frame() && happens(plan_.again)) return pushed::more;
    return carrier_->push(m);
  }
  [[nodiscard]] bool in_frame() const noexcept override { return carrier_->in_frame(); }
  void abandon(outgoing& m) noexcept override { carrier_->abandon(m); }
  bool push_tiny(const tiny_line& line) noexcept override {
    return !broken_ && !happens(plan_.no_line) && carrier_->push_tiny(line);
  }

  std::size_t poll(frame_receiver& to, std::size_t budget) noexcept override {
    if (broken_) return 0;
    to_ = &to;
    if (plan_.cut_after != 0 && ++polls_ >= plan_.cut_after) {
      on_broken(error{errc::link_lost, "the fault injector cut the link"});
      return 1;
    }
    if (holds_back(plan_.late)) return 0;
    return carrier_->poll(*this, holds_back(plan_.short_poll) ? std::min<std::size_t>(budget, 1) : budget);
  }
  [[nodiscard]] bool quiet() const noexcept override { return !held_back_ && carrier_->quiet(); }
  void forget_target(const std::byte* begin, const std::byte* end) noexcept override {
    carrier_->forget_target(begin, end);
  }

  bool announce_sleep(bool wants_room) noexcept override { return carrier_->announce_sleep(wants_room); }
  void fence_refused() noexcept override { carrier_->fence_refused(); }
  bool arm(bool wants_room) noexcept override {
    // What was held back is there already.
    return !std::exchange(held_back_, false) && (broken_ || carrier_->arm(wants_room));
  }
  void disarm() noexcept override { carrier_->disarm(); }
  [[nodiscard]] const char* name() const noexcept override { return carrier_->name(); }

 private:
  bool happens(std::uint32_t chance) noexcept { return chance != 0 && dice_() % 1000 < chance; }
  bool holds_back(std::uint32_t chance) noexcept {
    if (!happens(chance)) return false;
    return held_back_ = true;
  }

  // Between the carrier and whoever polls: to know when it breaks by itself.
  std::byte* direct_target(const frame_header& header) noexcept override {
    return to_->direct_target(header);
  }
  void on_frame(const frame_header& header, const std::byte* payload) noexcept override {
    to_->on_frame(header, payload);
  }
  void on_tiny(const tiny_line& line) noexcept override { to_->on_tiny(line); }
  void on_broken(error why) noexcept override {
    broken_ = true;
    to_->on_broken(std::move(why));
  }

  std::unique_ptr<wire> carrier_;
  fault_plan plan_;
  std::minstd_rand dice_;
  frame_receiver* to_ = nullptr;
  std::uint64_t polls_ = 0;
  bool held_back_ = false;
  bool broken_ = false;
};

}  // namespace chorale
