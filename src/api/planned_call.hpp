// A call whose buffers, counts and operation stay: checked, and its plan found, once.
//
//   auto plan = comm.plan(chorale::all_reduce(grad, chorale::avg));
//   for (;;) co_await plan.run();
//
// Making one is local and takes no place in the order; every run is a call like any other, and matches the
// other ranks' calls whether they planned theirs or not. Belongs to its lane's epoch: after a reset runs end
// with errc::revoked, make it anew. Movable; goes before the communicator does. What cannot be is told by
// every run.
#pragma once

#include <chorale/api/description.hpp>
#include <chorale/api/lane.hpp>

namespace chorale {

class planned_call {
 public:
  /// Makes the call. Runs may overlap only where their buffers allow it, which they do not where one writes.
  ticket run(deadline limit = {});
  /// Whether it can be run at all; errc::ok, or what every run will say.
  [[nodiscard]] const error& refused() const noexcept { return refused_; }

 private:
  friend class lane;
  planned_call(lane on, call what, error refused) noexcept
      : on_{std::move(on)}, what_{std::move(what)}, refused_{std::move(refused)} {}
  lane on_;
  call what_;
  error refused_;
};

}  // namespace chorale
