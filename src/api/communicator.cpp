#include <chorale/api/communicator.hpp>
#include <chorale/async/engine.hpp>
#include <chorale/collective/epoch.hpp>
#include <chorale/transport/guard/guard.hpp>
#include <chorale/transport/guard/neighbours.hpp>

#include <algorithm>

namespace chorale {
namespace {

bool guards_are_neighbours(rank_t low, rank_t high, rank_t size) noexcept {
  return std::ranges::binary_search(control_neighbours(low, size), high);
}

result<selection_settings> settings_from(const communicator_options& options) {
  auto settings = selection_settings::from_environment();
  if (!settings) return settings;
  if (options.deterministic)
    settings->mode =
        *options.deterministic ? reproducibility::deterministic : reproducibility::same_on_all_ranks;
  if (!options.algorithm.empty()) {
    auto forced = parse_algorithm(options.algorithm);
    if (!forced) return std::move(forced).error();
    settings->forced = *forced;
  }
  return settings;
}

}  // namespace

// Lanes.

lane::~lane() {
  if (inside_) inside_->close_handle(*state_);
}

ticket lane::place(call what, deadline limit) {
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
  auto valid = validate(what, inside_->rank(), inside_->size());
  if (!valid) {
    place.refused = std::move(valid).error();
    return ticket{std::move(place)};
  }
  what.expires = limit.from(inside_->loop().now());
  place.number = inside_->take_ticket(*state_, what);
  place.inside = inside_;
  place.lane = state_;
  place.what = what;
  return ticket{std::move(place)};
}

ticket lane::all_reduce(std::span<float> inout, reduction op, deadline limit) {
  return all_reduce(inout, inout, op, limit);
}

ticket lane::all_reduce(std::span<const float> in, std::span<float> out, reduction op, deadline limit) {
  if (in.size() != out.size()) {
    detail::call_place place;
    place.refused =
        error{errc::invalid_argument, "all_reduce: the input has " + std::to_string(in.size()) +
                                          " elements and the output " + std::to_string(out.size()) +
                                          "; give both the same length"};
    return ticket{std::move(place)};
  }
  call what;
  what.kind = collective_kind::all_reduce;
  what.type = dtype::f32;
  what.op = op;
  what.in = reinterpret_cast<const std::byte*>(in.data());
  what.out = reinterpret_cast<std::byte*>(out.data());
  what.count = in.size();
  return place(what, limit);
}

ticket lane::message(std::byte* data, std::size_t count, dtype type, rank_t peer, direction way,
                     deadline limit) {
  call what;
  what.kind = collective_kind::message;
  what.type = type;
  what.in = way == direction::out ? data : nullptr;
  what.out = way == direction::in ? data : nullptr;
  what.count = count;
  what.peer = peer;
  what.sending = way == direction::out;
  return place(what, limit);
}

ticket lane::barrier(deadline limit) {
  call what;
  what.kind = collective_kind::barrier;
  return place(what, limit);
}

// The communicator.

communicator::communicator(std::unique_ptr<epoch> current)
    : current_{std::move(current)}, lane_{lane_for(default_lane)} {}

communicator::communicator(communicator&&) noexcept = default;
communicator& communicator::operator=(communicator&& other) noexcept {
  std::swap(current_, other.current_);
  std::swap(quarantined_, other.quarantined_);
  std::swap(lane_, other.lane_);
  return *this;
}

communicator::~communicator() {
  if (!current_) return;
  current_->leave();
  lane_ = lane{error{}};
  current_.reset();
}

task<communicator> communicator::join(communicator_options options) {
  auto config = bootstrap_config::from_environment();
  if (!config) throw failure{std::move(config).error()};
  auto settings = settings_from(options);
  if (!settings) throw failure{std::move(settings).error()};
  config->capabilities = settings->encoded();
  config->control_pairs = guards_are_neighbours;
  task<result<world>> meeting = bootstrap(*std::move(config));
  auto members = co_await std::move(meeting);
  if (!members) throw failure{std::move(members).error()};
  task<result<std::unique_ptr<epoch>>> building = assemble(*std::move(members));
  auto built = co_await std::move(building);
  if (!built) throw failure{std::move(built).error()};
  co_return communicator{*std::move(built)};
}

rank_t communicator::rank() const noexcept { return current_->members.rank; }
rank_t communicator::size() const noexcept { return current_->members.size; }
rank_t communicator::launched_as() const noexcept { return current_->members.origin; }
std::uint64_t communicator::epoch_number() const noexcept { return current_->members.epoch; }
const error& communicator::cause() const noexcept { return current_->inside->cause(); }

std::string_view communicator::transport_to(rank_t peer) const noexcept {
  return peer == rank() ? "self" : current_->inside->link_to(peer).carrier().name();
}

lane communicator::lane_for(std::uint64_t key) {
  auto opened = current_->inside->open_lane(key);
  if (!opened) return lane{std::move(opened).error()};
  return {current_->inside.get(), *opened};
}

task<void> communicator::reset() {
  core& old = *current_->inside;
  std::vector<rank_t> dead;
  if (old.cause().culprit() != no_rank) dead.push_back(old.cause().culprit());
  if (!old.cause()) old.revoke_all(error{errc::revoked, "the communicator was reset"});
  lane_ = lane{error{errc::revoked, "the communicator is being reset"}};
  std::unique_ptr<epoch> former = std::move(current_);
  task<result<world>> meeting = reset_world(std::move(former->members), std::move(dead));
  auto members = co_await std::move(meeting);
  quarantined_.push_back(std::move(former));
  if (!members) throw failure{std::move(members).error()};
  task<result<std::unique_ptr<epoch>>> building = assemble(*std::move(members));
  auto built = co_await std::move(building);
  if (!built) throw failure{std::move(built).error()};
  current_ = *std::move(built);
  lane_ = lane_for(default_lane);
}

}  // namespace chorale
