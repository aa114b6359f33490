// The network of a simulation: every frame between every two ranks, its delays and its accidents, all from
// one seed.
//
// Lives on one engine, whose clock should be virtual, and outlives the wires that it hands out (see
// simulated_wire.hpp). Time advances in ticks, so that what happens "at once" is handled in one turn of the
// engine. Frames between two ranks keep their order; everything else is the seed's choice within the
// `simulated_conditions`: delays, how data is cut into frames, when a sender finds no room. With many ranks
// an engine spends its time asking wires that have nothing to say: `attend` lets the network ask a rank's
// poller only when something of that rank is due. Engine's thread only.
#pragma once

#include <chorale/async/engine.hpp>
#include <chorale/collective/simulated_random.hpp>
#include <chorale/collective/simulated_trace.hpp>
#include <chorale/transport/wire.hpp>

#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace chorale {

inline constexpr duration simulated_tick = std::chrono::microseconds{1};

/// Times are in ticks.
struct simulated_conditions {
  std::uint64_t seed = 1;
  std::uint64_t delay = 2;          ///< of a frame, at least
  std::uint64_t jitter = 8;         ///< and up to so much more
  std::uint64_t slow_one_in = 200;  ///< a frame that takes `slow_delay`
  std::uint64_t slow_delay = 300;
  std::uint64_t stall_one_in = 16;  ///< a push that finds no room although there is some
  std::uint64_t split_one_in = 4;   ///< a frame of data, or its delivery, that is cut in two
  std::uint32_t slots = 8;          ///< frames under way between two ranks
  /// A planted fault, for the test of the tests: the sender counts one slot that is still being read.
  bool slot_reused_early = false;

  /// A draw from what networks do: quick, jittery, nearly without room.
  [[nodiscard]] static simulated_conditions drawn(std::uint64_t seed) noexcept;
};

/// What becomes of a connection whose rank is gone.
enum class simulated_ending : std::uint8_t {
  open,    ///< none yet
  silent,  ///< nothing more comes, and nobody says so
  closed,  ///< the reader is told, when it has read what came before
};

/// Sees every frame before its receiver does. May change the header; false loses the frame. Planted faults.
using frame_inspector = std::function<bool(rank_t from, rank_t to, frame_header& header)>;

/// One direction between two ranks.
struct simulated_link {
  struct slot {
    frame_header header;
    std::vector<frame_header> payload;  // bytes, aligned like a frame
    std::uint64_t size = 0;             // of them
    time_point first_part{};            // of a delivery in two parts; equal to `whole` otherwise
    time_point whole{};
    [[nodiscard]] std::byte* bytes() noexcept { return reinterpret_cast<std::byte*>(payload.data()); }
  };
  rank_t from = no_rank;
  rank_t to = no_rank;
  std::vector<slot> slots;  // none before the first frame
  std::uint64_t head = 0;   // frames delivered
  std::uint64_t tail = 0;   // frames sent
  time_point latest_arrival{};
  bool refused = false;  // the sender found no slot
  simulated_ending ending = simulated_ending::open;
  time_point ends_at = never;
  [[nodiscard]] slot& at(std::uint64_t number) noexcept { return slots[number % slots.size()]; }
};

class simulated_network final : public poller {
 public:
  simulated_network(engine& loop, rank_t ranks, const simulated_conditions& conditions);
  simulated_network(const simulated_network&) = delete;
  simulated_network& operator=(const simulated_network&) = delete;
  ~simulated_network();

  /// From now on `what`, which has been the engine's, is polled when something of `who` is due. Must outlive
  /// the last turn of the engine.
  void attend(rank_t who, poller& what);

  /// The end at `here` of the connection with `there`. Once for each direction.
  [[nodiscard]] std::unique_ptr<wire> connect(rank_t here, rank_t there);

  /// The rank's process ends now: of what is under way, some is lost; the others see `how`.
  void kill(rank_t who, simulated_ending how);
  /// The rank leaves in good order: everything it sent arrives, then the connections close.
  void leave(rank_t who);
  /// The connection between two ranks breaks. Either side may learn of it first.
  void cut(rank_t a, rank_t b);
  /// The rank computes until then: nothing is taken off its wires.
  void compute(rank_t who, time_point until);

  [[nodiscard]] bool dead(rank_t who) const noexcept { return dead_[static_cast<std::size_t>(who)]; }
  [[nodiscard]] bool computes(rank_t who) const noexcept {
    return busy_until_[static_cast<std::size_t>(who)] > loop_.now();
  }
  [[nodiscard]] engine& loop() noexcept { return loop_; }
  [[nodiscard]] const simulated_conditions& conditions() const noexcept { return conditions_; }
  [[nodiscard]] seeded_random& random() noexcept { return random_; }
  [[nodiscard]] simulated_trace& trace() noexcept { return trace_; }
  void inspect_with(frame_inspector inspector) { inspector_ = std::move(inspector); }
  [[nodiscard]] const frame_inspector& inspector() const noexcept { return inspector_; }

  [[nodiscard]] simulated_link& link(rank_t from, rank_t to) noexcept {
    return links_[static_cast<std::size_t>(from) * ranks_ + static_cast<std::size_t>(to)];
  }
  /// Something of `who` is due then.
  void wake_at(time_point at, rank_t who);
  /// Something of `who` is due now.
  void wake(rank_t who) noexcept { due_[static_cast<std::size_t>(who)] = true; }
  /// Now, and so many ticks.
  [[nodiscard]] time_point after(std::uint64_t ticks) const noexcept;
  [[nodiscard]] time_point draw_arrival() noexcept;

  std::size_t poll(std::size_t budget) noexcept override;
  arming arm() noexcept override;
  void disarm() noexcept override {}
  [[nodiscard]] std::size_t outstanding() const noexcept override { return 0; }

 private:
  struct alarm : timer {
    explicit alarm(simulated_network& s) noexcept : timer{fired}, self{s} {}
    static void fired(operation& op) noexcept;
    simulated_network& self;
  };
  void end(simulated_link& l, simulated_ending how, std::uint64_t within_ticks);
  void lose_some(simulated_link& l) noexcept;

  engine& loop_;
  std::size_t ranks_;
  simulated_conditions conditions_;
  seeded_random random_;
  simulated_trace trace_;
  frame_inspector inspector_;
  std::vector<simulated_link> links_;
  std::vector<bool> dead_;
  std::vector<time_point> busy_until_;
  std::vector<poller*> attended_;  // by rank; null: the engine's
  std::vector<bool> due_;
  std::set<std::pair<time_point, rank_t>> wakes_;
  alarm alarm_{*this};
};

}  // namespace chorale
