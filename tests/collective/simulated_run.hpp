// One seed while it is played: the ranks' programs and what strikes them (simulation.cpp), and whether every
// end was right (simulated_judgement.cpp).
#pragma once

#include "rig.hpp"
#include "simulation.hpp"
#include <chorale/async/virtual_backend.hpp>

#include <optional>
#include <vector>

namespace chorale::testing {

inline constexpr float poison = 1 << 20;    // what a disagreeing rank contributes
inline constexpr float poisoned = 1 << 18;  // sums of honest values stay far below
inline constexpr float scribble = -7777;    // what an owner writes into a buffer that is its own again

/// What rank `r` contributes to a call: small enough that every sum is exact.
inline std::uint64_t value_of(rank_t r, std::size_t call, std::size_t i) {
  return (static_cast<std::uint64_t>(r) * 31 + call * 17 + i * 7) & 63;
}

struct call_state_of_rank {
  std::vector<float> in;
  std::vector<float> out;  // empty: in place
  std::optional<started> running;
  bool scribbled = false;
  [[nodiscard]] std::vector<float>& result() { return out.empty() ? in : out; }
};

class simulated_run {
 public:
  simulated_run(const scenario& s, plan_store& plans, planted bug);
  ~simulated_run();
  judgement run(bool print_trace);

 private:
  struct fault_state {
    bool happened = false;
    time_point from = never;  // deadlines
  };
  struct limit : timer {
    explicit limit(simulated_run& s) noexcept : timer{fired}, self{s} {}
    static void fired(operation& op) noexcept { static_cast<limit&>(op).self.give_up(); }
    simulated_run& self;
  };

  static task<void> everybody(simulated_run& self);
  static task<void> live(simulated_run& self, rank_t me);
  static task<void> await_call(simulated_run& self, rank_t me, std::size_t index);
  static task<void> keep(started op, std::optional<result<void>>& into);
  static task<void> be_struck(simulated_run& self, std::size_t fault);
  static task<void> say_goodbye(simulated_run& self, rank_t me, fault_state& fate);

  void prepare(rank_t me, std::size_t index);
  void start(rank_t me, std::size_t index);
  std::vector<std::size_t> draw_order(rank_t me, seeded_random& dice) const;
  [[nodiscard]] const planned_fault* fault_at(rank_t me, std::size_t index, fault_kind kind) const;
  fault_state& state_of(const planned_fault& f) {
    return fates_[static_cast<std::size_t>(&f - script_.faults.data())];
  }

  void judge(rank_t me, std::size_t index, const result<void>& outcome);
  void judge_success(rank_t me, std::size_t index);
  bool explains(const planned_fault& f, rank_t me, std::size_t index, const error& why);
  bool lane_fault_explains(const planned_fault& f, rank_t me, std::size_t index, const error& why);
  void judge_leftovers();
  void complain(rank_t me, std::size_t index, const std::string& what);
  void give_up() noexcept;
  bool inspect(rank_t from, rank_t to, frame_header& header);

  [[nodiscard]] call_state_of_rank& state(rank_t r, std::size_t index) {
    return calls_[static_cast<std::size_t>(r) * script_.calls.size() + index];
  }
  [[nodiscard]] core& on(rank_t r) { return *cores_[static_cast<std::size_t>(r)]; }

  const scenario& script_;
  plan_store& plans_;
  planted bug_;
  engine loop_{std::make_unique<virtual_backend>()};
  simulated_network net_;
  std::vector<std::unique_ptr<core>> cores_;
  std::optional<simulated_guard> guard_;
  std::vector<call_state_of_rank> calls_;  // by rank, then call
  std::vector<fault_state> fates_;
  std::vector<rank_t> callers_;  // by call: ranks that made it
  judgement judgement_;
  limit limit_{*this};
  bool hung_ = false;
  bool lane_revoke_lost_ = false;
};

}  // namespace chorale::testing
