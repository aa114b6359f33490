#include <chorale/api/blocking_communicator.hpp>
#include <chorale/collective/lane.hpp>

namespace chorale {
namespace {

task<error> cause_of(const communicator& comm) {
  error cause = comm.cause();
  co_return cause;
}

hosted_communicator join_blocking(communicator_options options) {
  if (error why = detail::refusal_to_block()) throw failure{std::move(why)};
  return hosted_communicator{std::move(options)};
}

}  // namespace

blocking_communicator::blocking_communicator(communicator_options options)
    : blocking_communicator{join_blocking(std::move(options))} {}

blocking_communicator::blocking_communicator(hosted_communicator joined)
    : hosted_{std::move(joined)}, own_{blocking_lane{hosted_->lane(default_lane)}} {}

error blocking_communicator::cause() const {
  return detail::block_on_task(hosted_->thread().loop(), [on = &**hosted_] { return cause_of(*on); });
}

std::optional<blocking_communicator> blocking_communicator::split(std::int64_t colour, std::int64_t key,
                                                                  deadline limit) const {
  std::optional<hosted_communicator> child = hosted_->split(colour, key, limit, block);
  if (!child) return std::nullopt;
  return blocking_communicator{*std::move(child)};
}

blocking_communicator blocking_communicator::dup(deadline limit) const { return *split(0, 0, limit); }

void blocking_communicator::reset_lane(deadline limit) {
  const result<> met = hosted_->reset_lane(limit, std::nothrow);
  own_.emplace(blocking_lane{hosted_->lane(default_lane)});
  if (!met) throw failure{met.error()};
}

void blocking_communicator::reset() {
  own_.reset();
  hosted_->reset(block);
  own_.emplace(blocking_lane{hosted_->lane(default_lane)});
}

}  // namespace chorale
