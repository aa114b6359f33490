// The notice that something ended: a lane, or a whole communicator epoch.
//
// A plain value that fits a control frame. It travels from the rank that learnt of a failure to every
// member's guard and from there to the communicator through `guard_sink`. Making text of it (`to_error`)
// allocates and is for the thread that reports, never for a guard thread.
#pragma once

#include <chorale/async/error.hpp>

#include <cstdint>

namespace chorale {

/// How much a failure ends.
enum class revoke_scope : std::uint8_t {
  all = 0,   ///< the communicator's epoch: nothing of it can go on
  lane = 1,  ///< one lane; the membership and the other lanes live on
};

struct revoke {
  std::uint64_t communicator = 0;
  std::uint64_t epoch = 0;
  revoke_scope scope = revoke_scope::all;
  std::uint64_t lane = 0;    ///< meaningful for revoke_scope::lane
  std::uint64_t ticket = 0;  ///< the operation during which it was noticed; 0 = none
  errc cause = errc::ok;
  rank_t culprit = no_rank;  ///< who is at fault
  rank_t origin = no_rank;   ///< who noticed first
  /// peer_lost: the fatal signal (or `death_by_terminate`), 0 = unknown; link_lost: the errno.
  std::int32_t detail = 0;

  friend bool operator==(const revoke&, const revoke&) = default;
};

/// `revoke::detail` of a process that died in std::terminate.
inline constexpr std::int32_t death_by_terminate = 1000;

/// The same as an error with a sentence for people: "rank 2 is dying: signal 11 (Segmentation fault)".
[[nodiscard]] error to_error(const revoke& notice);

}  // namespace chorale
