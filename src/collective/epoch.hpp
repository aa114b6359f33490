// One epoch of a communicator put together: the world it came from, the memory it shares, its wires, its
// guard.
//
// `assemble` agrees with every rank on what must not differ, maps the segments, and starts the guard. What an
// epoch owns is destroyed in the reverse order: core, guard, wires, memory, sockets.
#pragma once

#include <chorale/collective/core.hpp>
#include <chorale/transport/bootstrap/bootstrap.hpp>
#include <chorale/transport/bootstrap/segment.hpp>

#include <memory>
#include <vector>

namespace chorale {

struct epoch {
  world members;
  std::vector<segment> data_segments;  ///< by position among the host-mates
  segment guard_memory;
  std::vector<unique_fd> doorbells;  ///< engines' eventfds, by position
  std::unique_ptr<core> inside;

  /// Announces `left` and flushes what is on its way to remote peers. Blocks for a moment at most, never on a
  /// peer.
  void leave() noexcept;
};

/// Every rank of `members` calls it. The calling task's engine becomes the epoch's.
[[nodiscard]] task<result<std::unique_ptr<epoch>>> assemble(world members);

}  // namespace chorale
