// One epoch of a communicator put together: the world it came from, the memory it shares, its wires, its
// guard.
//
// `assemble` agrees with every rank on what must not differ, maps the segments, and starts the guard. What an
// epoch owns is destroyed in the reverse order: core, guard, wires, memory, sockets.
#pragma once

#include <chorale/collective/core.hpp>
#include <chorale/collective/gpu_side.hpp>
#include <chorale/transport/bootstrap/bootstrap.hpp>
#include <chorale/transport/bootstrap/descriptor_mail.hpp>
#include <chorale/transport/bootstrap/segment.hpp>

#include <memory>
#include <vector>

namespace chorale {

struct epoch {
  world members;
  std::vector<segment> data_segments;  ///< by position among the host-mates
  segment guard_memory;
  std::vector<unique_fd> doorbells;  ///< engines' eventfds, by position
  descriptor_mail windows;           ///< memory of windows, on its way between host-mates
  std::vector<unique_fd> streams;    ///< the tcp wires' sockets once more, for `leave`
  std::unique_ptr<core> inside;
  std::unique_ptr<gpu_side> gpu;  ///< once use_gpu was called
  /// Both talk over the sockets between host-mates, which carry one conversation at a time.
  std::uint32_t windows_in_the_making = 0;
  bool gpu_in_the_making = false;

  ~epoch();

  /// Announces `left` and sees that what was sent arrives: closing a socket early would throw it away. Waits
  /// for the kernels of remote hosts, half a second at most, and for no program.
  void leave() noexcept;
  /// What a reset does first: see `core::close`.
  void close(error why) noexcept;
};

/// An epoch, or why there is none: then `made` holds its members, and whoever has joined meanwhile is told.
struct assembly {
  std::unique_ptr<epoch> made;
  error why_not;
};

/// Every rank of `members` calls it. The calling task's engine becomes the epoch's. A rank that ends or
/// freezes meanwhile makes it end with errc::link_lost, or errc::timed_out after `members.config.timeout`.
[[nodiscard]] task<assembly> assemble(world members);

}  // namespace chorale
