// A lane: one order of matching calls, independent of every other. Made when first used or when a message for
// it comes; holds what peers' messages are compared with.
#pragma once

#include <chorale/collective/in_flight.hpp>
#include <chorale/collective/message_box.hpp>
#include <chorale/transport/frame.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace chorale {

/// The key of the lane that calls on the communicator itself use.
inline constexpr std::uint64_t default_lane = 0;
/// What the guard calls the order of operations on device memory.
inline constexpr std::uint64_t gpu_lane = ~std::uint64_t{0};

class window_side;

struct lane_state {
  struct finished_call {
    std::uint64_t ticket = 0;
    signature call;
    std::shared_ptr<const count_table> counts;  ///< all_to_all_v: what single peers had to call
  };

  std::uint64_t key = default_lane;  ///< among all lanes of the epoch
  group* among = nullptr;            ///< whose order of calls it is
  window_side* window = nullptr;     ///< whose lane it is, if a window's: they end together
  std::uint64_t next_ticket = 1;
  std::uint32_t handles = 0;  ///< lane objects and unstarted tickets that refer to it
  std::uint32_t running = 0;
  in_flight* first = nullptr;
  in_flight* last = nullptr;
  std::array<finished_call, 16> history{};
  /// Why the lane ended; errc::ok while it is alive.
  error cause;
  struct word {
    rank_t from = no_rank;
    lane_revoke_body body;
  };
  word ended_by;  ///< who told of it, if another rank did: a child's numbers may not be known yet
  std::uint64_t cause_ticket = 0;  ///< the call that it happened in
  /// Collectives from this ticket on can not end: a rank that they need has left.
  std::uint64_t short_from = ~std::uint64_t{0};
  rank_t missing = no_rank;         ///< that rank
  std::vector<rank_t> left_before;  ///< who left a child that is not known here yet; by number in the epoch
  std::unique_ptr<message_box> messages;  ///< null until the first
  std::uint64_t origin = default_lane;    ///< the key before the lane was ever reset
  std::uint64_t generation = 0;           ///< how often it has been

  [[nodiscard]] bool ended() const noexcept { return static_cast<bool>(cause); }
};

}  // namespace chorale
