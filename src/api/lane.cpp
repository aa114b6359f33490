#include <chorale/api/lane.hpp>
#include <chorale/api/planned_call.hpp>
#include <chorale/collective/core.hpp>
#include <chorale/collective/prepared_call.hpp>

#include <vector>

namespace chorale {
namespace {

ticket refuse(error why) {
  detail::call_place place;
  place.refused = std::move(why);
  return ticket{std::move(place)};
}

}  // namespace

lane::~lane() {
  if (inside_ && !forked()) inside_->close_handle(*state_);
}

error lane::unusable() const {
  if (!inside_)
    return refused_ ? refused_ : error{errc::invalid_state, "a lane was used after it was moved from"};
  return forked() ? error{errc::forked} : error{};
}

ticket lane::place(const described_call& described, deadline limit) {
  if (error why = unusable()) return refuse(std::move(why));
  if (!state_->among->recent().find(described.what)) {
    auto valid = validate(described.what, state_->among->rank(), state_->among->size());
    if (!valid) return refuse(std::move(valid).error());
  }
  return take_place(described.what, limit);
}

ticket lane::reset(deadline limit) {
  if (error why = unusable()) return refuse(std::move(why));
  auto renewed = inside_->renew_lane(*state_);
  if (!renewed) return refuse(std::move(renewed).error());
  state_ = *renewed;
  return place(chorale::barrier(), limit);
}

ticket lane::take_place(const call& valid, deadline limit) {
  if (error why = inside_->refusal(*state_, valid)) return refuse(std::move(why));
  detail::call_place place;
  place.what = valid;
  if (limit.is_set()) place.what.expires = limit.from(inside_->loop().now());
  place.number = inside_->take_ticket(*state_, place.what);
  place.inside = inside_;
  place.lane = state_;
  return ticket{std::move(place)};
}

task<void> lane::batch(std::span<const described_call> calls) {
  std::vector<ticket> placed;
  placed.reserve(calls.size());
  for (const described_call& each : calls) placed.push_back(place(each));
  return detail::run_batch(std::move(placed));
}

planned_call lane::plan(const described_call& described) {
  if (error why = unusable()) return {lane{why}, described.what, why};
  auto valid = validate(described.what, state_->among->rank(), state_->among->size());
  if (!valid) return {lane{valid.error()}, described.what, valid.error()};
  auto handle = inside_->open_lane(*state_);
  call what = described.what;
  if (what.kind != collective_kind::message) {
    auto found = inside_->prepare(*state_->among, what);
    if (!found) return {lane{inside_, handle}, std::move(what), std::move(found).error()};
    what.prepared = std::make_shared<const prepared_call>(*std::move(found));
  }
  return {lane{inside_, handle}, std::move(what), error{}};
}

ticket planned_call::run(deadline limit) {
  if (refused_) return refuse(refused_);
  if (error why = on_.unusable()) return refuse(std::move(why));
  return on_.take_place(what_, limit);
}

}  // namespace chorale
