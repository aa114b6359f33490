#include <chorale/api/hosted_communicator.hpp>
#include <chorale/transport/guard/guard.hpp>

#include <new>

namespace chorale {

hosted_communicator::hosted_communicator(communicator_options options)
    : thread_{std::make_shared<engine_thread>()} {
  thread_->run(join(*this, std::move(options)));
}

hosted_communicator::hosted_communicator(std::shared_ptr<engine_thread> thread, communicator joined)
    : thread_{std::move(thread)}, joined_{std::make_unique<communicator>(std::move(joined))} {}

hosted_communicator::~hosted_communicator() {
  if (!thread_) return;
  if (forked()) {  // no such thread here; all of it is the parent's
    static_cast<void>(new (std::nothrow) auto{std::move(joined_)});
    static_cast<void>(new (std::nothrow) auto{std::move(thread_)});
    return;
  }
  if (!joined_ || thread_->loop().in_loop()) return;
  thread_->run(leave(std::move(joined_)));
}

task<void> hosted_communicator::join(hosted_communicator& self, communicator_options options) {
  task<communicator> joining = communicator::join(std::move(options));
  communicator joined = co_await std::move(joining);
  self.joined_ = std::make_unique<communicator>(std::move(joined));
}

task<void> hosted_communicator::leave(std::unique_ptr<communicator> leaving) {
  leaving.reset();
  co_return;
}

task<std::optional<hosted_communicator>> hosted_communicator::adopt(
    std::shared_ptr<engine_thread> thread, task<std::optional<communicator>> splitting) {
  std::optional<communicator> got = co_await std::move(splitting);
  std::optional<hosted_communicator> child;
  if (got) child.emplace(hosted_communicator{std::move(thread), *std::move(got)});
  co_return child;
}

hosted_lane hosted_communicator::lane(std::uint64_t key) const {
  return hosted_lane{
      engine_cell<chorale::lane>{thread_->loop(), [on = joined_.get(), key] { return on->lane_for(key); }}};
}

hosted_plan hosted_communicator::plan(described_call described) const {
  return hosted_plan{engine_cell<planned_call>{
      thread_->loop(),
      [on = joined_.get(), described = std::move(described)] { return on->plan(described); }}};
}

}  // namespace chorale
