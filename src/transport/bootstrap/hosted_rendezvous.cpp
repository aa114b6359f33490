#include <chorale/async/as_result.hpp>
#include <chorale/transport/bootstrap/hosted_rendezvous.hpp>

#include <csignal>

namespace chorale {
namespace {

// Threads inherit the mask: the application's handlers must not run on a thread it does not know.
class signals_blocked {
 public:
  signals_blocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  signals_blocked(const signals_blocked&) = delete;
  signals_blocked& operator=(const signals_blocked&) = delete;
  ~signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

result<std::unique_ptr<hosted_rendezvous>> hosted_rendezvous::start(rendezvous_options options) {
  auto place = rendezvous::listen(std::move(options));
  if (!place) return std::move(place).error();
  try {
    auto loop = std::make_unique<engine>();
    return std::unique_ptr<hosted_rendezvous>{new hosted_rendezvous{*std::move(place), std::move(loop)}};
  } catch (const failure& f) {
    return f.why();
  }
}

hosted_rendezvous::hosted_rendezvous(std::unique_ptr<rendezvous> place, std::unique_ptr<engine> loop)
    : place_{std::move(place)}, loop_{std::move(loop)}, where_{place_->where()} {
  const signals_blocked during_creation;
  thread_ = std::thread{[this] { loop_->run(serve_until(*place_, close_)); }};
}

hosted_rendezvous::~hosted_rendezvous() {
  loop_->post(close_request_);
  thread_.join();
}

task<void> hosted_rendezvous::serve_until(rendezvous& place, event& close) {
  const environment& here = co_await this_environment{};
  scope serving{here};
  serving.spawn(place.serve());
  co_await close.wait();
  co_await place.drain();
  serving.request_stop();
  co_await serving.join();
}

}  // namespace chorale
