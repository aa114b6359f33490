// Ranks as real processes, on pretended hosts, for tests of the guard.
//
// `world` prepares what a bootstrap would (segments, bells, control links, end-of-file sockets), forks one
// process per rank and reads what they report on a shared board. The parent has no threads of its own, so
// that forking is sound under the sanitizers. Children use no Boost.Test and end with _exit; whoever is left
// when the world ends is killed. Every wait is on a word or a pidfd and bounded.
#pragma once

#include <chorale/transport/guard/frame.hpp>
#include <chorale/transport/guard/guard.hpp>
#include <chorale/transport/guard/system_calls.hpp>

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace guard_test {

using namespace std::chrono_literals;
using chorale::guarding::clock;

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CHORALE_TEST_THREAD_SANITIZER 1
#endif
#endif
#if defined(CHORALE_TEST_THREAD_SANITIZER) || defined(__SANITIZE_THREAD__)
inline constexpr bool under_thread_sanitizer = true;
#else
inline constexpr bool under_thread_sanitizer = false;
#endif

inline constexpr chorale::rank_t most_ranks = 24;
inline constexpr std::size_t most_lane_revokes = 512;

/// A number that one process sets and others wait for.
class counter {
 public:
  void set(std::uint32_t value) noexcept;
  void add_one() noexcept;
  [[nodiscard]] std::uint32_t get() const noexcept { return word_.load(); }
  /// False when `limit` passes first.
  [[nodiscard]] bool reaches(std::uint32_t value, std::chrono::nanoseconds limit) const noexcept;

 private:
  chorale::guarding::futex_word word_{0};
};

struct notice {
  std::atomic<std::int32_t> cause{0}, culprit{0}, origin{0}, detail{0};
  std::atomic<std::uint64_t> lane{0}, ticket{0};
  std::atomic<std::int64_t> at{0};  // steady clock
};

/// What one rank reports, and what it is told.
struct report {
  counter joined;
  counter phase;   // for the test's own use
  counter causes;  // on_cause calls with revoke_scope::all
  notice first;
  counter lane_causes;
  std::array<notice, most_lane_revokes> lanes;
  counter leavings;
  std::array<std::atomic<std::uint64_t>, most_ranks> left_ticket{};  // + 1
  std::atomic<std::uint8_t> call_state{0};                           // what its sink answers
  std::array<std::atomic<std::uint8_t>, most_ranks> signal{};
  std::array<std::atomic<std::uint64_t>, 8> numbers{};  // for the test's own use
  counter order;                                        // set by the parent
};

struct board {
  counter start;
  std::array<std::atomic<pid_t>, most_ranks> pids{};
  std::array<report, most_ranks> ranks;
};

class sink final : public chorale::guard_sink {
 public:
  explicit sink(report& r) : report_{r} {}
  void on_cause(const chorale::revoke& r) noexcept override;
  void on_left(chorale::rank_t who, std::uint64_t last_ticket) noexcept override;
  [[nodiscard]] chorale::call_state state_of(std::uint64_t, std::uint64_t) const noexcept override {
    return static_cast<chorale::call_state>(report_.call_state.load());
  }

 private:
  report& report_;
};

enum class link_type { unix_pair, tcp };

struct world_options {
  std::vector<int> hosts;  // by rank; its size is the number of ranks
  link_type links = link_type::unix_pair;
  bool pidfd_and_eof = true;  // end-of-file sockets between host-mates
  bool shared_process_keys = false;
  chorale::guard_options guard;
};

class world;

/// Inside a rank's process.
class rank_process {
 public:
  rank_process(world& w, chorale::rank_t rank) : world_{w}, rank_{rank} {}

  [[nodiscard]] chorale::rank_t rank() const noexcept { return rank_; }
  [[nodiscard]] report& mine() noexcept;
  /// Enters the world's communicator `which` (each has its own segment and links).
  [[nodiscard]] chorale::membership join(std::size_t which = 0);
  [[nodiscard]] chorale::membership join(std::size_t which, sink& s);
  /// Until the parent gives order `n`.
  void await_order(std::uint32_t n);
  /// The descriptor of the control link to `peer`, or −1; valid before `join`.
  [[nodiscard]] int link_to(chorale::rank_t peer) const noexcept;

 private:
  world& world_;
  chorale::rank_t rank_;
  std::optional<sink> sink_;
};

class world {
 public:
  using body = std::function<void(rank_process&)>;

  world(world_options options, std::size_t communicators = 1);
  ~world();

  /// Forks; every rank runs `f` and exits with 0, or with 99 after an exception.
  void run(const body& f);
  [[nodiscard]] report& of(chorale::rank_t rank) { return board_->ranks[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] pid_t pid(chorale::rank_t rank) const {
    return board_->pids[static_cast<std::size_t>(rank)].load();
  }
  [[nodiscard]] chorale::rank_t size() const noexcept {
    return static_cast<chorale::rank_t>(options_.hosts.size());
  }
  [[nodiscard]] bool all_joined(std::chrono::nanoseconds limit = 10s);
  void order_all(std::uint32_t n);
  void kill(chorale::rank_t rank, int signal) { ::kill(pid(rank), signal); }
  /// The wait status, or nothing when it does not end within `limit`.
  [[nodiscard]] std::optional<int> ended(chorale::rank_t rank, std::chrono::nanoseconds limit = 10s);
  /// True when every rank not in `except` exits with 0.
  [[nodiscard]] bool all_ended_well(std::vector<chorale::rank_t> except = {});

 private:
  friend class rank_process;
  struct link {
    chorale::rank_t a, b;
    int end_a, end_b;
  };
  struct communicator {
    std::vector<void*> segments;    // by host
    std::vector<int> bells;         // by rank
    std::vector<link> links;        // between hosts
    std::vector<link> eof_sockets;  // between host-mates
  };
  void prepare(communicator& c);
  [[nodiscard]] chorale::membership_setup setup_for(chorale::rank_t rank, std::size_t which);
  void keep_only(chorale::rank_t rank) noexcept;
  void close_all() noexcept;

  world_options options_;
  board* board_;
  std::vector<communicator> communicators_;
  std::vector<bool> reaped_;
};

[[nodiscard]] std::int64_t now_ns() noexcept;
[[nodiscard]] std::vector<int> one_host(int ranks);

}  // namespace guard_test
