// The guards of a simulation: who learns of a death when, and from whom.
//
// One guard per rank, joined by the graph of transport/guard/neighbours.hpp. A guard that learns of a cause,
// by itself, from its own communicator or from a neighbour, passes it on first and acts on it then, once.
// News takes the time that the seed draws; a dead rank's guard passes nothing on. A poller of the engine,
// because what communicators find out by themselves has to be seen. Engine's thread.
#pragma once

#include <chorale/collective/core.hpp>
#include <chorale/collective/simulated_network.hpp>

#include <map>
#include <utility>
#include <vector>

namespace chorale {

struct simulated_guard_setup {
  /// By rank; null for ranks without a communicator. Outlive the guard.
  std::vector<core*> members;
  std::uint64_t hop_ticks = 10;  ///< news between neighbours takes up to so long
  /// A planted fault, for the test of the tests: only the guard that noticed a cause passes it on.
  bool drops_forwards = false;
};

class simulated_guard final : public poller {
 public:
  simulated_guard(simulated_network& net, simulated_guard_setup setup);
  simulated_guard(const simulated_guard&) = delete;
  simulated_guard& operator=(const simulated_guard&) = delete;
  ~simulated_guard();

  /// `witness` finds out by itself that `culprit` is gone, so many ticks from now.
  void witnesses(rank_t witness, rank_t culprit, errc cause, std::uint64_t ticks);
  /// Every other rank is told, within `ticks`, that `who` left. Its guard passes nothing on any more.
  void announces_leaving(rank_t who, std::uint64_t last_ticket, std::uint64_t ticks);

  std::size_t poll(std::size_t budget) noexcept override;
  arming arm() noexcept override { return arming::armed; }
  void disarm() noexcept override {}
  [[nodiscard]] std::size_t outstanding() const noexcept override { return 0; }

 private:
  struct news {
    rank_t to = no_rank;
    bool leaving = false;
    bool noticed_here = false;
    std::uint64_t last_ticket = 0;
    revoke notice;
  };
  void send(time_point at, const news& what);
  void deliver(const news& what) noexcept;
  void pass_on(rank_t from, const revoke& notice);

  simulated_network& net_;
  simulated_guard_setup setup_;
  std::vector<bool> knows_;
  std::multimap<time_point, news> under_way_;  // equal moments in the order of sending
};

}  // namespace chorale
