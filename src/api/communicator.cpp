#include <chorale/api/communicator.hpp>
#include <chorale/async/engine.hpp>
#include <chorale/collective/quarantine.hpp>
#include <chorale/transport/guard/guard.hpp>
#include <chorale/transport/guard/neighbours.hpp>

#include <algorithm>
#include <memory>
#include <new>

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
    auto forced = settings->force(options.algorithm);
    if (!forced) return std::move(forced).error();
  }
  auto sound = settings->check();
  if (!sound) return std::move(sound).error();
  return settings;
}

/// From the call of use_gpu until its task has ended, or is destroyed.
class gpu_making {
 public:
  explicit gpu_making(std::shared_ptr<epoch> of) noexcept : of_{std::move(of)} {
    of_->gpu_in_the_making = true;
  }
  gpu_making(const gpu_making&) = delete;
  gpu_making& operator=(const gpu_making&) = delete;
  ~gpu_making() { of_->gpu_in_the_making = false; }
  [[nodiscard]] epoch& of() const noexcept { return *of_; }

 private:
  std::shared_ptr<epoch> of_;
};

error refusal_of_a_gpu(const epoch& current, bool child) {
  if (forked()) return error{errc::forked};
  if (child)
    return error{errc::unsupported,
                 "a communicator made by split has no GPU operations yet; use the GPU of the one it was "
                 "split from"};
  if (current.gpu)
    return error{errc::invalid_state, "this epoch has its GPU already; one per communicator and process"};
  if (current.windows_in_the_making != 0)
    return error{errc::invalid_state,
                 "use_gpu while a window is being created; await one, then call the other"};
  if (current.gpu_in_the_making)
    return error{errc::invalid_state, "use_gpu twice at a time; one per communicator and process"};
  return {};
}

task<void> make_gpu(std::unique_ptr<gpu_making> making, error refused, int ordinal) {
  if (refused) throw failure{std::move(refused)};
  epoch& current = making->of();
  task<result<std::unique_ptr<gpu_side>>> creating = gpu_side::create(current.members, ordinal);
  auto made = co_await std::move(creating);
  if (!made) throw failure{std::move(made).error()};
  current.gpu = *std::move(made);
  current.inside->abort_with(current.gpu.get());
}

/// A rank that has memory of this one mapped.
struct sharer {
  rank_t rank;
  rank_t origin;
};

std::vector<sharer> sharers_of(const world& w) {
  std::vector<sharer> all;
  for (const peer& p : w.peers)
    if (p.host_mate && p.rank != w.rank) all.push_back({p.rank, p.origin});
  return all;
}

/// Those of them who are not in the epoch that came after.
std::vector<rank_t> left_behind(const std::vector<sharer>& sharers, const world& next) {
  std::vector<rank_t> ranks;
  for (const sharer& s : sharers)
    if (std::ranges::find(next.peers, s.origin, &peer::origin) == next.peers.end()) ranks.push_back(s.rank);
  return ranks;
}

}  // namespace

communicator::communicator(std::shared_ptr<epoch> current)
    : current_{std::move(current)},
      former_{std::make_unique<quarantine>(current_->inside->loop())},
      lane_{lane_for(default_lane)} {}

communicator::communicator(std::shared_ptr<epoch> current, group& among)
    : current_{std::move(current)}, child_{&among}, lane_{lane_for(default_lane)} {}

communicator::communicator(communicator&& other) noexcept
    : current_{std::move(other.current_)},
      child_{std::exchange(other.child_, nullptr)},
      former_{std::move(other.former_)},
      lane_{std::move(other.lane_)} {}
communicator& communicator::operator=(communicator&& other) noexcept {
  std::swap(current_, other.current_);
  std::swap(child_, other.child_);
  std::swap(former_, other.former_);
  std::swap(lane_, other.lane_);
  return *this;
}

communicator::~communicator() {
  if (!current_) return;
  if (forked()) {
    // All of it is the parent's: rings, sockets, the engine's descriptors. Touching any would speak for it.
    [[maybe_unused]] const auto* kept = new (std::nothrow) std::shared_ptr<epoch>{std::move(current_)};
    [[maybe_unused]] const auto* also_kept = former_.release();
    return;
  }
  if (child_) {
    current_->inside->leave_group(*child_);
    lane_ = lane{error{}};
    return;
  }
  current_->leave();
  lane_ = lane{error{}};
  former_.reset();
  if (current_.use_count() > 1) current_->inside->orphan();
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
  task<assembly> building = assemble(*std::move(members));
  assembly built = co_await std::move(building);
  if (built.why_not) throw failure{std::move(built.why_not)};
  co_return communicator{std::move(built.made)};
}

engine& communicator::loop() const noexcept { return current_->inside->loop(); }
group& communicator::among() const noexcept { return child_ ? *child_ : current_->inside->everybody(); }
std::uint64_t communicator::next_ticket() const noexcept {
  // Lanes that were reset count from one again.
  return lane_.state_ ? core::next_ticket(*lane_.state_) | lane_.state_->generation << 40 : 0;
}
rank_t communicator::rank() const noexcept { return among().rank(); }
rank_t communicator::size() const noexcept { return among().size(); }
rank_t communicator::launched_as() const noexcept { return current_->members.origin; }
std::uint64_t communicator::epoch_number() const noexcept { return current_->members.epoch; }
const error& communicator::cause() const noexcept {
  if (!forked()) current_->inside->look_at_the_guard();
  return current_->inside->cause();
}

std::string_view communicator::transport_to(rank_t peer) const noexcept {
  if (peer == rank()) return "self";
  return current_->inside->closed() ? "closed"
                                    : current_->inside->link_to(among().in_epoch(peer)).carrier().name();
}

lane communicator::lane_for(std::uint64_t key) {
  if (forked()) return lane{error{errc::forked}};
  auto opened = current_->inside->open_lane(among(), key);
  if (!opened) return lane{std::move(opened).error()};
  return {current_->inside.get(), *opened};
}

// The call takes its place here, as that of create_window does, not where it is awaited.
task<void> communicator::use_gpu(int ordinal) {
  error why = refusal_of_a_gpu(*current_, child_ != nullptr);
  auto making = why ? nullptr : std::make_unique<gpu_making>(current_);
  return make_gpu(std::move(making), std::move(why), ordinal);
}

gpu_call communicator::on_gpu(on stream, deadline limit) const {
  gpu_call made;
  made.inside = current_->inside.get();
  made.gpu = child_ ? nullptr : current_->gpu.get();
  made.stream = stream.stream;
  if (forked()) {
    made.refused = error{errc::forked};
    return made;
  }
  if (limit.is_set()) made.what.expires = limit.from(loop().now());
  if (child_)
    made.refused =
        error{errc::unsupported,
              "a communicator made by split has no GPU operations yet; use the GPU of the one it was "
              "split from"};
  else if (!made.gpu)
    made.refused =
        error{errc::invalid_state,
              "an operation on device memory before use_gpu; co_await comm.use_gpu(ordinal) on every "
              "rank first, again after a reset"};
  return made;
}

gpu_ticket communicator::launch(const described_call& described, on stream, deadline limit) {
  gpu_call made = on_gpu(stream, limit);
  const time_point expires = made.what.expires;
  made.what = described.what;
  made.what.expires = expires;
  return gpu_ticket{std::move(made)};
}

gpu_ticket communicator::launch_batch(std::span<const described_call> calls, on stream, deadline limit) {
  gpu_call made = on_gpu(stream, limit);
  made.batch.reserve(calls.size());
  for (const described_call& each : calls) made.batch.push_back(each.what);
  return gpu_ticket{std::move(made)};
}

task<void> communicator::reset() {
  if (forked()) throw failure{error{errc::forked}};
  if (child_)
    throw failure{error{errc::unsupported,
                        "a communicator made by split ends with the one it was split from; "
                        "reset that, and split again"}};
  if (!current_->members.rendezvous)
    throw failure{
        error{errc::no_decider, "an earlier reset failed; destroy the communicator and join again"}};
  lane_ = lane{error{errc::revoked, "the communicator is being reset"}};
  current_->close({});
  std::vector<rank_t> dead;
  if (const rank_t culprit = current_->inside->cause().culprit(); culprit != no_rank) dead.push_back(culprit);
  const std::vector<sharer> sharers = sharers_of(current_->members);
  std::vector<std::unique_ptr<epoch>> half_way;
  std::vector<std::vector<sharer>> half_way_sharers;
  world members = std::move(current_->members);
  for (rank_t attempts = members.size;; --attempts) {
    task<result<world>> meeting = reset_world(std::move(members), dead);
    auto met = co_await std::move(meeting);
    if (!met) throw failure{std::move(met).error()};
    task<assembly> building = assemble(*std::move(met));
    assembly built = co_await std::move(building);
    if (!built.why_not) {
      const world& next = built.made->members;
      former_->add(std::move(current_), left_behind(sharers, next));
      for (std::size_t i = 0; i < half_way.size(); ++i)
        former_->add(std::move(half_way[i]), left_behind(half_way_sharers[i], next));
      current_ = std::move(built.made);
      lane_ = lane_for(default_lane);
      co_return;
    }
    // One more was lost meanwhile: those that are left ask for the epoch after this one.
    const bool lost = built.why_not == errc::link_lost || built.why_not == errc::timed_out;
    if (!lost || attempts == 1) throw failure{std::move(built.why_not)};
    dead.assign(1, built.why_not.culprit());
    half_way_sharers.push_back(sharers_of(built.made->members));
    members = std::move(built.made->members);
    half_way.push_back(std::move(built.made));
  }
}

}  // namespace chorale
