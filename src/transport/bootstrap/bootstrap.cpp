#include <chorale/async/sleep.hpp>
#include <chorale/transport/bootstrap/bootstrap.hpp>
#include <chorale/transport/bootstrap/mesh.hpp>

#include <unistd.h>

#include <algorithm>

namespace chorale {
namespace {

member_record record_of(const bootstrap_config& config, rank_t rank, const mesh_listeners& listeners) {
  member_record mine;
  mine.rank = rank;
  mine.origin = config.rank;
  mine.size = config.size;
  mine.pid = ::getpid();
  mine.uid = ::geteuid();
  mine.stripes = static_cast<std::uint16_t>(std::clamp(config.stripes, 1, 64));
  mine.capabilities = config.capabilities;
  mine.flags = config.tcp_between_mates ? member_record::wants_tcp : std::uint16_t{0};
  mine.host_id = config.host_id;
  mine.mate_name = listeners.mate_name;
  mine.addresses = listeners.addresses;
  return mine;
}

result<rank_t> rank_in(const member_table& table, rank_t origin) {
  for (const member_record& m : table.members)
    if (m.origin == origin) return m.rank;
  return error{errc::excluded, "rank " + std::to_string(origin) + " of the launch is not in epoch " +
                                   std::to_string(table.epoch)};
}

// The part that joining and resetting share: the table is there, connect. On failure `w` keeps its
// rendezvous.
task<result<void>> enter_epoch(world& w, member_table table, const mesh_listeners& listeners,
                               time_point started, time_point until) {
  const environment& here = co_await this_environment{};
  const auto rank = rank_in(table, w.config.rank);
  if (!rank) co_return rank.error();
  w.spent.join = here.loop->now() - started;
  w.rank = *rank;
  w.size = static_cast<rank_t>(table.members.size());
  w.origin = w.config.rank;
  w.epoch = table.epoch;
  w.nonce = table.nonce;
  const time_point connecting = here.loop->now();
  task<result<mesh>> connect = connect_mesh(w.config, table, w.rank, listeners, w.rendezvous, until);
  auto made = co_await std::move(connect);
  if (!made) co_return std::move(made).error();
  w.peers = std::move(made->peers);
  w.spent.strangers = made->strangers;
  w.spent.mesh = here.loop->now() - connecting;
  co_return result<void>{};
}

}  // namespace

std::vector<rank_t> world::host_mates() const {
  std::vector<rank_t> mates;
  for (const peer& p : peers)
    if (p.host_mate) mates.push_back(p.rank);
  return mates;
}

task<result<world>> bootstrap(bootstrap_config config) {
  const environment& here = co_await this_environment{};
  const time_point started = here.loop->now();
  const time_point until = std::min(deadline{config.timeout}.from(started), here.deadline);
  world w;
  if (config.hosts_rendezvous) {
    rendezvous_options options;
    options.where = config.root;
    options.size = config.size;
    options.secret = config.secret;
    options.timeout = config.timeout;
    options.hello_timeout = config.hello_timeout;
    options.reset_grace = config.reset_grace;
    auto hosted = hosted_rendezvous::start(std::move(options));
    if (!hosted) co_return std::move(hosted).error();
    w.hosted = *std::move(hosted);
    config.root = w.hosted->where();
  }
  w.config = std::move(config);
  task<result<rendezvous_link>> connecting = rendezvous_link::connect(w.config, until);
  auto link = co_await std::move(connecting);
  if (!link) co_return std::move(link).error();
  w.rendezvous = *std::move(link);
  const auto listeners = mesh_listeners::open(w.config, w.rendezvous.local());
  if (!listeners) co_return listeners.error();
  const member_record mine = record_of(w.config, w.config.rank, *listeners);
  task<result<member_table>> joining = w.rendezvous.join(mine, until);
  auto table = co_await std::move(joining);
  if (!table) co_return std::move(table).error();
  task<result<void>> entering = enter_epoch(w, *std::move(table), *listeners, started, until);
  const auto entered = co_await std::move(entering);
  if (!entered) co_return entered.error();
  co_return w;
}

task<result<world>> reset_world(world old, std::vector<rank_t> believed_dead) {
  const environment& here = co_await this_environment{};
  const time_point started = here.loop->now();
  const time_point until = std::min(deadline{old.config.timeout}.from(started), here.deadline);
  world next;
  next.config = std::move(old.config);
  next.hosted = std::move(old.hosted);
  next.rendezvous = std::move(old.rendezvous);
  next.rank = old.rank;
  next.epoch = old.epoch;
  for (;;) {
    const auto listeners = mesh_listeners::open(next.config, next.rendezvous.local());
    if (!listeners) co_return listeners.error();
    const member_record mine = record_of(next.config, next.rank, *listeners);
    task<result<member_table>> asking = next.rendezvous.ask_reset(next.epoch, believed_dead, mine, until);
    auto table = co_await std::move(asking);
    if (!table) co_return std::move(table).error();
    old.peers.clear();
    task<result<void>> entering = enter_epoch(next, *std::move(table), *listeners, started, until);
    const auto entered = co_await std::move(entering);
    if (entered) co_return next;
    // A rank ended while the new epoch was being connected: the others ask again, and so does this one.
    if (entered.error().code() != errc::peer_lost || here.stop_requested()) co_return entered.error();
    believed_dead.assign(1, entered.error().culprit());
  }
}

}  // namespace chorale
