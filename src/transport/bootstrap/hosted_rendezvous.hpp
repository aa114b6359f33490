// A rendezvous with a thread and an engine of its own: for rank 0 of a job that has no launcher of ours.
//
// Owned by rank 0's world: when that goes, so does the decider of resets. `start` fails where the address can
// not be listened on. The thread blocks all signals.
#pragma once

#include <chorale/transport/bootstrap/rendezvous.hpp>

#include <memory>
#include <thread>

namespace chorale {

class hosted_rendezvous {
 public:
  [[nodiscard]] static result<std::unique_ptr<hosted_rendezvous>> start(rendezvous_options options);
  hosted_rendezvous(const hosted_rendezvous&) = delete;
  hosted_rendezvous& operator=(const hosted_rendezvous&) = delete;
  /// Stops serving and joins the thread.
  ~hosted_rendezvous();
  [[nodiscard]] const address& where() const noexcept { return where_; }

 private:
  struct closing : operation {
    explicit closing(event& e) noexcept : operation{run_now}, asked{e} {}
    static void run_now(operation& op) noexcept { static_cast<closing&>(op).asked.set(); }
    event& asked;
  };
  hosted_rendezvous(std::unique_ptr<rendezvous> place, std::unique_ptr<engine> loop);
  static task<void> serve_until(rendezvous& place, event& close);

  std::unique_ptr<rendezvous> place_;
  std::unique_ptr<engine> loop_;
  address where_;
  event close_;
  closing close_request_{close_};
  std::thread thread_;
};

}  // namespace chorale
