#include <chorale/api/lane.hpp>
#include <chorale/collective/core.hpp>

namespace chorale {

lane::~lane() {
  if (inside_ && !forked()) inside_->close_handle(*state_);
}

ticket lane::place(const described_call& described, deadline limit) {
  detail::call_place place;
  if (!inside_) {
    place.refused =
        refused_ ? refused_ : error{errc::invalid_state, "a lane was used after it was moved from"};
    return ticket{std::move(place)};
  }
  if (forked()) {
    place.refused = error{errc::forked};
    return ticket{std::move(place)};
  }
  auto valid = validate(described.what, inside_->rank(), inside_->size());
  if (!valid) {
    place.refused = std::move(valid).error();
    return ticket{std::move(place)};
  }
  place.what = described.what;
  place.what.expires = limit.from(inside_->loop().now());
  place.number = inside_->take_ticket(*state_, place.what);
  place.inside = inside_;
  place.lane = state_;
  return ticket{std::move(place)};
}

}  // namespace chorale
