#include <chorale/api/blocking.hpp>
#include <chorale/transport/guard/guard.hpp>

namespace chorale::detail {
namespace {

class waiting_thread final : public foreign_call::listener {
 public:
  void ended(const error& outcome) noexcept override { outcome_ = outcome; }
  [[nodiscard]] error take() noexcept { return std::move(outcome_); }

 private:
  error outcome_;
};

}  // namespace

error refusal_to_block() {
  if (forked()) return error{errc::forked};
  if (!engine::current()) return {};
  return error{errc::invalid_state,
               "a blocking call was made on a thread that runs an engine, inside one of its coroutines, and "
               "would stop that engine; co_await a communicator of that engine there, or make the call on "
               "another thread"};
}

error wait_for(foreign_call& call) {
  waiting_thread here;
  static_cast<void>(call.first_to_begin());
  call.begin(here);
  call.wait_until_quiet();
  return here.take();
}

}  // namespace chorale::detail
