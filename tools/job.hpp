// Running the ranks of one job, or this node's share of them: what `chorale run` does after its options are
// read.
//
// Starts the processes, serves the rendezvous (node 0), relays their output, forwards signals, and when a
// rank is lost says so at once, lets the others end by themselves for `grace`, and then ends them and what
// ranks had started. One engine, one thread; signals are blocked and read from a descriptor.
#pragma once

#include "child.hpp"
#include <chorale/async/clock.hpp>
#include <chorale/async/event.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/transport/bootstrap/rendezvous.hpp>
#include <chorale/transport/socket.hpp>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace chorale::tools {

enum class loss_policy { abort, carry_on };

struct job_options {
  std::string program;
  std::vector<std::string> arguments;
  std::vector<std::string> variables;
  int ranks = 1;  ///< on this node
  int nodes = 1;
  int node = 0;
  std::optional<address> root;  ///< required with several nodes
  std::string secret;
  bool tag_output = false;
  bool bind_cores = false;
  loss_policy on_loss = loss_policy::abort;
  duration grace = std::chrono::milliseconds{400};
  duration time_limit = duration::max();
  duration bootstrap_timeout = std::chrono::seconds{60};
  duration reset_grace = std::chrono::seconds{5};
};

/// Exit codes that are not a rank's.
inline constexpr int exit_bad_usage = 2;
inline constexpr int exit_timed_out = 124;
inline constexpr int exit_not_started = 126;

class job {
 public:
  explicit job(job_options options);
  /// The exit code of `chorale run`: that of the first rank that failed, 0 if none did. With
  /// loss_policy::carry_on, ranks that were killed do not count as long as one succeeded.
  [[nodiscard]] task<int> run();

 private:
  [[nodiscard]] result<void> prepare();
  [[nodiscard]] result<void> start_all();
  [[nodiscard]] std::vector<std::string> variables_for(rank_t rank, int local_rank) const;
  [[nodiscard]] bool is_local(rank_t rank) const noexcept;

  task<void> watch_signals();
  task<void> watch_child(child& c);
  task<void> relay(unique_fd& from, int to, rank_t rank);
  task<void> relay_both(child& c, event& done);
  task<void> watch_other_nodes();
  task<void> limit_time();
  task<void> end_after_loss();
  task<void> end_orphans();
  void reap_orphans();
  void child_ended(child& c);
  void lost_elsewhere(rank_t rank);
  void first_failure(int code);
  void signal_all(int number);
  void say(const std::string& text) const;

  job_options options_;
  std::unique_ptr<rendezvous> place_;
  unique_fd signals_;
  std::deque<child> children_;
  event child_changed_;
  scope* background_ = nullptr;
  int running_ = 0;
  int signals_taken_ = 0;
  int exit_code_ = 0;
  int killed_code_ = 0;
  bool succeeded_ = false;
  int ended_by_us_ = 0;
  bool ending_ = false;
};

}  // namespace chorale::tools
