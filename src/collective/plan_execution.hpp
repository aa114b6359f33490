// The executor: walks a lowered plan, one state per step, driven by completions of the pairs.
//
// It knows no transport: steps become receives and sends of pairs, and end when those do. Nothing waits
// except by returning; storage grows to the largest plan and stays. Completions may come inside a send or a
// receive, so ready steps go through a list instead of recursion.
#pragma once

#include <chorale/collective/combining.hpp>
#include <chorale/collective/in_flight.hpp>
#include <chorale/schedule/plan.hpp>
#include <chorale/transport/pair.hpp>

#include <memory>
#include <vector>

namespace chorale {

class plan_execution final : public in_flight {
 public:
  /// Before `begin`: what to walk, which is kept, and whether its folds are kept in accumulators.
  void prepare(std::shared_ptr<const schedule::plan> plan, const combining& how, bool wide) noexcept;
  /// Whether the plan of a call is to be one for input and output in one place: where they are, and where the
  /// input is scaled into the output first.
  [[nodiscard]] static bool runs_in_place(const call& what, rank_t rank, rank_t ranks) noexcept;

 protected:
  void begin() override;
  void take_back() noexcept override;
  [[nodiscard]] bool needs(rank_t in_epoch) const noexcept override;
  void recycle() noexcept override;

 private:
  struct send_state : outgoing {
    plan_execution* home = nullptr;
    schedule::step_index step = 0;
    rank_t peer = no_rank;
  };
  struct landing : posted_receive {
    plan_execution* home = nullptr;
    std::uint32_t edge = 0;
    schedule::step_index step = 0;
    bool in_use = false;
    bool arrived = false;
    std::uint64_t landed = 0;  // bytes that wait for their step in `buffer`
    std::unique_ptr<std::byte[]> buffer;
    std::uint64_t capacity = 0;
  };
  static constexpr std::size_t slots_per_edge = 2;
  struct edge_state {
    std::uint32_t first = 0;   // into arrivals_: the edge's receiving steps by sequence
    std::uint32_t posted = 0;  // how many of them have had their slot
  };
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct step_state {
    std::uint32_t waits_for = 0;  // dependencies not finished
    bool done = false;
    bool ready = false;         // its message may go to its place
    std::uint32_t send = none;  // index into sends_
    std::uint64_t spare = 0;    // offset in spare_ for a value that is only forwarded
  };

  void lay_out();
  void find_buffers();
  void drain() noexcept;
  void issue(schedule::step_index s) noexcept;
  void start_send(schedule::step_index s, const std::byte* from) noexcept;
  void fill_slots(std::uint32_t edge) noexcept;
  void post(landing& slot) noexcept;
  void open(schedule::step_index s) noexcept;
  void apply(schedule::step_index s, std::uint64_t offset, const std::byte* payload,
             std::uint64_t bytes) noexcept;
  void received(landing& slot) noexcept;
  [[nodiscard]] std::span<landing> slots_of(std::uint32_t edge) noexcept;
  void step_done(schedule::step_index s) noexcept;
  /// The message of a step that receives is on this side, whether its step has begun or not.
  [[nodiscard]] bool has_come(schedule::step_index s) const noexcept;
  void complete() noexcept;
  [[nodiscard]] std::uint64_t widened(std::uint64_t offset) const noexcept;
  [[nodiscard]] bool goes_straight(schedule::step_index s) const noexcept;
  [[nodiscard]] const std::byte* source(const schedule::plan_step& s) const noexcept;
  [[nodiscard]] std::byte* target(const schedule::plan_step& s) noexcept;
  /// Where the value of a step that reduces ends up.
  [[nodiscard]] std::byte* sink_of(schedule::step_index s) noexcept;

  static void on_sent(outgoing& m) noexcept;
  static void on_received(posted_receive& r) noexcept;
  static void on_part(posted_receive& r, std::uint64_t offset, const std::byte* payload,
                      std::uint64_t bytes) noexcept;

  std::shared_ptr<const schedule::plan> plan_;
  combining how_;
  std::size_t element_ = 4;
  bool wide_ = false;
  const std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  std::unique_ptr<std::byte[]> scaled_;  // a premultiplied input that has no other place
  std::uint64_t scaled_capacity_ = 0;
  std::vector<step_state> steps_;
  std::unique_ptr<send_state[]> sends_;
  std::unique_ptr<landing[]> landings_;  // slots_per_edge for each edge of the plan
  std::vector<edge_state> edges_;
  std::vector<schedule::step_index> arrivals_;
  std::size_t send_capacity_ = 0;
  std::size_t landing_capacity_ = 0;
  std::size_t sends_used_ = 0;
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_capacity_ = 0;
  std::uint64_t spare_begin_ = 0;  // forwarded values lie behind the plan's scratch
  std::vector<schedule::step_index> ready_;
  std::size_t left_ = 0;
  bool draining_ = false;
  bool taken_back_ = false;
  float token_[2] = {};  // input and output of a call that carries nothing
};

}  // namespace chorale
