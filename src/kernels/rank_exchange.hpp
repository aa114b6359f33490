// What creating a device group needs from whoever knows the other ranks: three blocking collectives.
//
// Called in the same order by every rank, from the creating thread only. An implementation must end with an
// error when a rank dies or a deadline passes; the group adds no timeout of its own around these calls. All
// ranks are on one host.
#pragma once

#include <chorale/async/result.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace chorale {

class rank_exchange {
 public:
  virtual ~rank_exchange() = default;

  /// Every rank's `mine`, all of the same length, one after the other in rank order.
  virtual result<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> mine) = 0;

  /// Every rank's descriptor, duplicated into this process; -1 in the own place. `mine` stays the caller's,
  /// the returned ones become the caller's.
  virtual result<std::vector<int>> all_gather_fds(int mine) = 0;

  /// Returns when every rank has called it.
  virtual result<void> barrier() = 0;
};

}  // namespace chorale
