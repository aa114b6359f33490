#include <chorale/async/as_result.hpp>
#include <chorale/async/io.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/with_environment.hpp>
#include <chorale/transport/bootstrap/accept_loop.hpp>
#include <chorale/transport/bootstrap/hello.hpp>
#include <chorale/transport/bootstrap/mate_proof.hpp>
#include <chorale/transport/bootstrap/mesh.hpp>
#include <chorale/transport/bootstrap/secret.hpp>

#include <algorithm>
#include <deque>

namespace chorale {
namespace {

constexpr auto patience_per_address = std::chrono::seconds{2};
constexpr auto longest_pause = std::chrono::milliseconds{100};

task<void> wait_for(event& e) { co_await e.wait(); }

task<result<void>> connect_stream(int fd, const address& where) {
  const auto connected = co_await connect_to(fd, where.data(), where.size());
  if (!connected) co_return connected.error();
  co_return result<void>{};
}

class mesh_builder {
 public:
  mesh_builder(const bootstrap_config& config, const member_table& table, rank_t self,
               const mesh_listeners& listeners, rendezvous_link& link);
  task<result<mesh>> build();

 private:
  enum class relation { unknown, mates, remote };
  struct edge {
    relation is = relation::unknown;
    bool connected = false;
    error last;  // of the attempts to connect
  };

  [[nodiscard]] const member_record& record(rank_t r) const {
    return table_.members[static_cast<std::size_t>(r)];
  }
  [[nodiscard]] peer& at(rank_t r) { return made_.peers[static_cast<std::size_t>(r)]; }
  [[nodiscard]] edge& edge_to(rank_t r) { return edges_[static_cast<std::size_t>(r)]; }
  [[nodiscard]] bool wanted(rank_t other) const;
  [[nodiscard]] bool control_wanted(rank_t other) const;
  [[nodiscard]] hello introduction(rank_t to, hello_purpose purpose, std::uint16_t index) const;

  task<void> watch_losses();
  task<void> answer(unique_fd fd, bool by_unix);
  task<void> place_mate(rank_t from, unique_fd fd);
  [[nodiscard]] hello_status judge(const hello& h, bool by_unix);
  [[nodiscard]] unique_fd* slot_for(const hello& h);

  task<void> reach(rank_t to);
  task<void> reach_as_mate(rank_t to);
  task<void> reach_by_tcp(rank_t to, hello_purpose purpose, std::uint16_t index, unique_fd& slot);
  task<result<unique_fd>> try_address(address where, hello mine);

  void become_mates(rank_t r, unique_fd fd);
  void check(rank_t r);
  [[nodiscard]] error describe_missing() const;

  const bootstrap_config& config_;
  const member_table& table_;
  const rank_t self_;
  const mesh_listeners& listeners_;
  rendezvous_link& link_;
  std::uint16_t stripes_ = UINT16_MAX;
  bool tcp_between_mates_ = false;
  mesh made_;
  std::vector<edge> edges_;
  std::size_t pending_ = 0;
  half_open_limit half_open_{256};
  event done_;
  error lost_;
};

mesh_builder::mesh_builder(const bootstrap_config& config, const member_table& table, rank_t self,
                           const mesh_listeners& listeners, rendezvous_link& link)
    : config_{config},
      table_{table},
      self_{self},
      listeners_{listeners},
      link_{link},
      edges_(table.members.size()) {
  for (const member_record& m : table.members) {
    // Agreed by everybody seeing the same table.
    stripes_ = std::min(stripes_, std::max<std::uint16_t>(m.stripes, 1));
    tcp_between_mates_ = tcp_between_mates_ || (m.flags & member_record::wants_tcp) != 0;
    peer p;
    p.rank = m.rank;
    p.origin = m.origin;
    p.pid = m.pid;
    p.host_id = m.host_id;
    p.where = m.addresses.empty() ? "host " + m.host_id : m.addresses.front();
    p.capabilities = m.capabilities;
    p.host_mate = m.rank == self;
    made_.peers.push_back(std::move(p));
    if (m.rank == self) continue;
    if (wanted(m.rank))
      ++pending_;
    else
      edge_to(m.rank).connected = true;
  }
  for (peer& p : made_.peers)
    if (p.rank != self) p.data.resize(stripes_);
}

bool mesh_builder::wanted(rank_t other) const {
  const auto [low, high] = std::minmax(self_, other);
  return !config_.mesh_pairs || config_.mesh_pairs(low, high, static_cast<rank_t>(edges_.size()));
}

bool mesh_builder::control_wanted(rank_t other) const {
  const auto [low, high] = std::minmax(self_, other);
  return config_.control_pairs && config_.control_pairs(low, high, static_cast<rank_t>(edges_.size()));
}

hello mesh_builder::introduction(rank_t to, hello_purpose purpose, std::uint16_t index) const {
  hello h;
  h.purpose = purpose;
  h.index = index;
  h.from = self_;
  h.to = to;
  h.epoch = table_.epoch;
  h.nonce = table_.nonce;
  h.capabilities = record(self_).capabilities;
  if (edges_[static_cast<std::size_t>(to)].is == relation::mates) h.flags = hello::between_mates;
  return h;
}

task<result<mesh>> mesh_builder::build() {
  const environment& here = co_await this_environment{};
  scope work{here};
  if (pending_ != 0) {
    if (listeners_.mates)
      work.spawn(accept_loop(listeners_.mates.get(), work, half_open_,
                             [this](unique_fd fd) { return answer(std::move(fd), true); }));
    for (const unique_fd& listener : listeners_.tcp)
      work.spawn(accept_loop(listener.get(), work, half_open_,
                             [this](unique_fd fd) { return answer(std::move(fd), false); }));
    for (rank_t r = 0; r < self_; ++r)
      if (wanted(r)) work.spawn(reach(r));
    work.spawn(watch_losses());
    task<result<void>> wait = as_result(wait_for(done_));
    (void)co_await std::move(wait);
  }
  work.request_stop();
  co_await work.join();
  if (pending_ == 0) {
    // Without tcp between mates nobody filled the stripes: no empty descriptors for the user of the mesh.
    for (peer& p : made_.peers) std::erase_if(p.data, [](const unique_fd& fd) { return !fd; });
    co_return std::move(made_);
  }
  if (lost_) co_return lost_;
  if (here.stop && here.stop->reason() == errc::cancelled)
    co_return error{errc::cancelled, "connecting the ranks"};
  co_return describe_missing();
}

error mesh_builder::describe_missing() const {
  std::vector<rank_t> missing;
  std::string last;
  for (std::size_t r = 0; r < edges_.size(); ++r) {
    if (edges_[r].connected || static_cast<rank_t>(r) == self_) continue;
    missing.push_back(static_cast<rank_t>(r));
    if (last.empty() && edges_[r].last)
      last = "; rank " + std::to_string(r) + " at " + made_.peers[r].where + ": " + edges_[r].last.summary();
  }
  return error{errc::bootstrap_failed,
               "rank " + std::to_string(self_) + " of " + std::to_string(edges_.size()) +
                   " has no connection to " + list_ranks(missing) + last +
                   "; check that the addresses can be reached, CHORALE_SOCKET_IFNAME chooses them",
               missing.empty() ? no_rank : missing.front()};
}

task<void> mesh_builder::watch_losses() {
  if (!link_) co_return;
  task<error> loss = link_.first_loss(table_.epoch);
  error why = co_await std::move(loss);
  // A rendezvous that has ended takes nothing away from the table: the mesh may still become complete.
  if (why.code() != errc::peer_lost) co_return;
  lost_ = std::move(why);
  done_.set();
}

// Accepting.

unique_fd* mesh_builder::slot_for(const hello& h) {
  peer& p = at(h.from);
  if (h.purpose == hello_purpose::mate) return &p.mate;
  if (h.purpose == hello_purpose::control) return &p.control;
  if (h.purpose == hello_purpose::data && h.index < p.data.size()) return &p.data[h.index];
  return nullptr;
}

hello_status mesh_builder::judge(const hello& h, bool by_unix) {
  if (h.epoch != table_.epoch || h.nonce != table_.nonce) return hello_status::stale;
  const bool for_me =
      h.to == self_ && h.from > self_ && h.from < static_cast<rank_t>(edges_.size()) && wanted(h.from);
  if (!for_me || by_unix != (h.purpose == hello_purpose::mate)) return hello_status::unexpected;
  const unique_fd* const slot = slot_for(h);
  return slot && !*slot && !edge_to(h.from).connected ? hello_status::ok : hello_status::unexpected;
}

task<void> mesh_builder::answer(unique_fd fd, bool by_unix) {
  if (by_unix && !same_user(fd.get())) {
    ++made_.strangers;
    half_open_.leave();
    co_return;
  }
  tune_tcp(fd.get());
  const hello_judge judged = [this, by_unix](const hello& h) { return judge(h, by_unix); };
  task<result<hello>> answering = answer_hello(fd.get(), config_.secret, judged);
  task<result<hello>> bounded = with_timeout(config_.hello_timeout, std::move(answering));
  const auto heard = co_await std::move(bounded);
  half_open_.leave();
  if (!heard) {
    if (heard.error().code() != errc::cancelled) ++made_.strangers;
    co_return;
  }
  if (by_unix) {
    task<void> rest = place_mate(heard->from, std::move(fd));
    co_await std::move(rest);
    co_return;
  }
  unique_fd* const slot = slot_for(*heard);
  if (*slot) co_return;
  *slot = std::move(fd);
  edge_to(heard->from).is = (heard->flags & hello::between_mates) != 0 ? relation::mates : relation::remote;
  check(heard->from);
}

task<void> mesh_builder::place_mate(rank_t from, unique_fd fd) {
  task<bool> checking = with_timeout(config_.hello_timeout, check_descriptor(fd.get()));
  const bool proved = co_await std::move(checking);
  if (proved && !at(from).mate) become_mates(from, std::move(fd));
  check(from);
}

// Connecting.

task<void> mesh_builder::reach(rank_t to) {
  if (record(to).host_id == record(self_).host_id && !record(to).mate_name.empty()) {
    task<void> as_mate = reach_as_mate(to);
    co_await std::move(as_mate);
  }
  edge& e = edge_to(to);
  if (e.is == relation::unknown) e.is = relation::remote;
  peer& p = at(to);
  if (e.is == relation::remote || tcp_between_mates_) {
    for (std::uint16_t k = 0; k < stripes_; ++k) {
      task<void> stripe = reach_by_tcp(to, hello_purpose::data, k, p.data[k]);
      co_await std::move(stripe);
    }
  }
  if (e.is == relation::remote && control_wanted(to)) {
    task<void> control = reach_by_tcp(to, hello_purpose::control, 0, p.control);
    co_await std::move(control);
  }
  check(to);
}

task<void> mesh_builder::reach_as_mate(rank_t to) {
  const address where = address::unix_abstract(record(to).mate_name);
  const environment& here = co_await this_environment{};
  while (!here.stop_requested()) {
    task<result<unique_fd>> attempt = try_address(where, introduction(to, hello_purpose::mate, 0));
    auto connected = co_await std::move(attempt);
    if (connected) {
      task<bool> offering = offer_descriptor(connected->get());
      const bool proved = co_await std::move(offering);
      if (proved) become_mates(to, *std::move(connected));
      co_return;
    }
    edge_to(to).last = connected.error();
    // A full queue of connections empties; any other answer means that no descriptor can pass this way.
    if (connected.error().os_code() != EAGAIN) co_return;
    task<result<void>> pause = as_result(sleep_for(std::chrono::milliseconds{5}));
    (void)co_await std::move(pause);
  }
}

task<void> mesh_builder::reach_by_tcp(rank_t to, hello_purpose purpose, std::uint16_t index,
                                      unique_fd& slot) {
  const environment& here = co_await this_environment{};
  duration pause = std::chrono::milliseconds{2};
  while (!here.stop_requested()) {
    for (const std::string& text : record(to).addresses) {
      const auto where = address::parse(text);
      if (!where || where->is_unix()) continue;
      task<result<unique_fd>> attempt = try_address(*where, introduction(to, purpose, index));
      auto connected = co_await std::move(attempt);
      if (connected) {
        at(to).where = text;
        slot = *std::move(connected);
        co_return;
      }
      if (here.stop_requested()) co_return;
      edge_to(to).last = connected.error();
    }
    task<result<void>> wait = as_result(sleep_for(pause));
    (void)co_await std::move(wait);
    pause = std::min<duration>(pause * 2, longest_pause);
  }
}

task<result<unique_fd>> mesh_builder::try_address(address where, hello mine) {
  auto opened = open_stream(where);
  if (!opened) co_return std::move(opened).error();
  unique_fd fd = *std::move(opened);
  task<result<void>> connecting = with_timeout(patience_per_address, connect_stream(fd.get(), where));
  const auto connected = co_await std::move(connecting);
  if (!connected) co_return connected.error();
  if (where.is_unix() && !same_user(fd.get()))
    co_return error{errc::unsupported, "the process at " + where.text() + " belongs to another user"};
  tune_tcp(fd.get());
  task<result<void>> greeting = with_timeout(config_.hello_timeout, greet(fd.get(), config_.secret, mine));
  const auto greeted = co_await std::move(greeting);
  if (!greeted) co_return greeted.error();
  co_return fd;
}

// Both.

void mesh_builder::become_mates(rank_t r, unique_fd fd) {
  peer& p = at(r);
  edge_to(r).is = relation::mates;
  p.host_mate = true;
  if (const auto who = credentials_of(fd.get())) {
    if (who->pid > 0) p.pid = who->pid;
    p.process = process_of(fd.get(), *who);
  }
  p.mate = std::move(fd);
}

void mesh_builder::check(rank_t r) {
  edge& e = edge_to(r);
  const peer& p = at(r);
  if (e.connected || e.is == relation::unknown) return;
  const bool all_data =
      std::all_of(p.data.begin(), p.data.end(), [](const unique_fd& fd) { return bool{fd}; });
  const bool complete = e.is == relation::mates ? p.mate && (!tcp_between_mates_ || all_data)
                                                : all_data && (!control_wanted(r) || p.control);
  if (!complete) return;
  e.connected = true;
  if (--pending_ == 0) done_.set();
}

void listen_at(mesh_listeners& into, address where) {
  where.set_port(0);
  auto listener = listen_on(where);
  if (!listener) return;  // an address that went away; the others count
  into.addresses.push_back(local_address(listener->get()).text());
  into.tcp.push_back(*std::move(listener));
}

}  // namespace

result<mesh_listeners> mesh_listeners::open(const bootstrap_config& config, const address& towards_root) {
  mesh_listeners made;
  made.mate_name = "chorale-" + random_hex(16);
  auto mates = listen_on(address::unix_abstract(made.mate_name));
  if (mates)
    made.mates = *std::move(mates);
  else
    made.mate_name.clear();  // unix sockets forbidden: everybody is remote

  if (config.root.is_local()) {
    // Everybody is on this host: nothing to listen on that others could reach.
    listen_at(made, address::loopback(0));
  } else {
    // The interface that leads to the rendezvous first: it is most likely to be the common network.
    auto found = interface_addresses(config.interfaces);
    if (!found) return std::move(found).error();
    const auto preferred = std::find_if(found->begin(), found->end(),
                                        [&](const address& a) { return a.same_host(towards_root); });
    if (preferred != found->end())
      std::rotate(found->begin(), preferred, preferred + 1);
    else if (config.interfaces.is_default() && !towards_root.is_unix() && !towards_root.is_local())
      listen_at(made, towards_root);
    for (const address& a : *found) listen_at(made, a);
  }
  if (made.tcp.empty() && !made.mates)
    return error{errc::bootstrap_failed,
                 "no network interface can be listened on; CHORALE_SOCKET_IFNAME may exclude all of them"};
  return made;
}

task<result<mesh>> connect_mesh(const bootstrap_config& config, const member_table& table, rank_t self,
                                const mesh_listeners& listeners, rendezvous_link& link, time_point until) {
  mesh_builder builder{config, table, self, listeners, link};
  task<result<mesh>> building = with_deadline(until, builder.build());
  auto made = co_await std::move(building);
  co_return made;
}

}  // namespace chorale
