// Ranks as threads of the test, each with an engine of its own, as a job would have them as processes.
#pragma once

#include <chorale/async/engine.hpp>
#include <chorale/transport/bootstrap/bootstrap.hpp>

#include <functional>
#include <string>
#include <vector>

namespace chorale::testing {

/// A root that no other test uses.
[[nodiscard]] address fresh_unix_root();
/// A loopback address with a port that was free a moment ago.
[[nodiscard]] address fresh_tcp_root();

/// Rank `rank` of a job of `size` on this host, meeting at `root`, with ten seconds of patience.
[[nodiscard]] bootstrap_config config_for(rank_t rank, rank_t size, const address& root);

/// Runs `body(rank)` for every rank at once, each in a thread; what they throw is rethrown after all have
/// ended.
void run_ranks(rank_t size, const std::function<void(rank_t)>& body);

/// Bootstraps all ranks at once; `adjust` may change a rank's configuration first, `use` gets its outcome.
void bootstrap_all(rank_t size, const address& root, const std::function<void(bootstrap_config&)>& adjust,
                   const std::function<void(engine&, rank_t, result<world>)>& use);

/// A blocking connection of a stranger.
[[nodiscard]] unique_fd knock(const address& where);

/// A rendezvous outside the ranks, as `chorale run` has it.
class decider {
 public:
  explicit decider(rank_t size, address where = fresh_unix_root()) {
    rendezvous_options options;
    options.where = where;
    options.size = size;
    options.secret = "a secret of the tests";
    options.reset_grace = std::chrono::milliseconds{300};
    hosted_ = hosted_rendezvous::start(std::move(options)).value();
  }
  [[nodiscard]] bootstrap_config config(rank_t rank, rank_t size) const {
    bootstrap_config c = config_for(rank, size, hosted_->where());
    c.hosts_rendezvous = false;
    return c;
  }
  void end() { hosted_.reset(); }

 private:
  std::unique_ptr<hosted_rendezvous> hosted_;
};

}  // namespace chorale::testing
