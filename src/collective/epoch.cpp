#include <chorale/async/with_environment.hpp>
#include <chorale/collective/epoch.hpp>
#include <chorale/transport/guard/neighbours.hpp>
#include <chorale/transport/shm_wire.hpp>
#include <chorale/transport/tcp_wire.hpp>

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace chorale {
namespace {

constexpr auto longest_farewell = std::chrono::milliseconds{500};

/// Takes what has come, so that closing resets nothing; false at the end of the stream or on an error.
bool drain(int socket) noexcept {
  std::array<std::byte, 16384> waste;
  for (;;) {
    const ssize_t got = ::recv(socket, waste.data(), waste.size(), MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

/// Whether the other side's kernel has all that was sent. On one host that is when it has left our queue.
bool has_arrived(int socket) noexcept {
  int left = 0;
  const bool same_host = local_address(socket).same_host(peer_address(socket));
  return ::ioctl(socket, same_host ? SIOCOUTQNSD : SIOCOUTQ, &left) != 0 || left == 0;
}

void see_off(int socket, std::chrono::steady_clock::time_point until) noexcept {
  // Nothing tells of an acknowledgement: look every millisecond, or when the other side answers.
  while (drain(socket) && !has_arrived(socket) && std::chrono::steady_clock::now() < until) {
    pollfd answer{socket, POLLIN, 0};
    ::poll(&answer, 1, 1);
  }
}

class assembler {
 public:
  assembler(engine& loop, world members)
      : loop_{loop},
        made_{std::make_unique<epoch>()},
        among_{(made_->members = std::move(members), made_->members)} {}

  task<result<void>> run() {
    for (const auto step : {&assembler::agree, &assembler::share_memory, &assembler::share_guard_memory}) {
      task<result<void>> running = (this->*step)();
      auto done = co_await std::move(running);
      if (!done) co_return done;
    }
    connect();
    auto guarded = start_guard();
    if (!guarded) co_return guarded;
    // Nobody sends before everybody's guard watches: a death from here on is learnt.
    task<result<void>> all_watch = among_.barrier();
    auto together = co_await std::move(all_watch);
    co_return together;
  }

  std::unique_ptr<epoch> take() noexcept { return std::move(made_); }

 private:
  [[nodiscard]] std::uint32_t slots() const { return static_cast<std::uint32_t>(among_.mates().size()); }
  [[nodiscard]] std::uint32_t slot() const { return static_cast<std::uint32_t>(among_.position()); }

  /// Numbers for the hosts' names, in order of first appearance: the same on every rank.
  [[nodiscard]] std::vector<std::uint32_t> hosts() const {
    std::vector<std::string_view> names;
    std::vector<std::uint32_t> numbers;
    for (const peer& p : made_->members.peers) {
      const auto known = std::ranges::find(names, std::string_view{p.host_id});
      numbers.push_back(static_cast<std::uint32_t>(known - names.begin()));
      if (known == names.end()) names.push_back(p.host_id);
    }
    return numbers;
  }

  /// What host-mates have to know of each other.
  struct about_me {
    std::uint64_t sharing = 0;  ///< with so many ranks
    allowed_cpus cpus;          ///< of the engine's thread
  };

  /// The one-line path is used if every rank shares memory with every other; rank 0's settings count for all.
  task<result<void>> agree() {
    const world& w = made_->members;
    selection_ = selection_settings::decoded(w.peers.front().capabilities);
    const about_me mine{w.config.tcp_between_mates ? 0 : among_.mates().size(),
                        allowed_cpus::of_this_thread()};
    const std::span<const std::byte> bytes = std::as_bytes(std::span{&mine, 1});
    task<result<std::vector<std::vector<std::byte>>>> asking = among_.all_gather_bytes(bytes);
    auto answers = co_await std::move(asking);
    if (!answers) co_return std::move(answers).error();
    selection_.all_lines = mine.sharing == static_cast<std::uint64_t>(w.size);
    for (const auto& answer : *answers) {
      about_me theirs;
      if (answer.size() != sizeof theirs)
        co_return error{errc::protocol_error, "a host-mate told of itself in a wrong size"};
      std::memcpy(&theirs, answer.data(), sizeof theirs);
      selection_.all_lines = selection_.all_lines && theirs.sharing == static_cast<std::uint64_t>(w.size);
      cpus_.push_back(theirs.cpus);
    }
    co_return result<void>{};
  }

  task<result<void>> share_memory() {
    task<result<std::vector<segment>>> sharing = exchange_segments(among_, shm_segment::bytes(slots()));
    auto segments = co_await std::move(sharing);
    if (!segments) co_return std::move(segments).error();
    made_->data_segments = *std::move(segments);
    views_.assign(1, shm_segment::initialise(made_->data_segments[slot()].data(), slots()));
    task<result<void>> waiting = among_.barrier();
    auto initialised = co_await std::move(waiting);
    if (!initialised) co_return std::move(initialised).error();
    views_.clear();
    for (const segment& s : made_->data_segments) {
      auto view = shm_segment::open(s.data(), s.size(), slots());
      if (!view) co_return std::move(view).error();
      views_.push_back(*view);
    }
    task<result<std::vector<unique_fd>>> ringing = exchange_doorbells(among_, loop_.io().doorbell());
    auto bells = co_await std::move(ringing);
    if (!bells) co_return std::move(bells).error();
    made_->doorbells = *std::move(bells);
    co_return result<void>{};
  }

  task<result<void>> share_guard_memory() {
    const world& w = made_->members;
    task<result<segment>> sharing = share_segment(among_, guard_segment::bytes(slots()));
    auto memory = co_await std::move(sharing);
    if (!memory) co_return std::move(memory).error();
    made_->guard_memory = *std::move(memory);
    if (slot() == 0) guard_segment::initialise(made_->guard_memory.data(), slots(), w.epoch, w.nonce);
    own_bell_ = unique_fd{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    if (!own_bell_) co_return error::from_os(errno, "eventfd");
    task<result<std::vector<unique_fd>>> ringing = exchange_doorbells(among_, own_bell_.get());
    auto bells = co_await std::move(ringing);
    if (!bells) co_return std::move(bells).error();
    guard_bells_ = *std::move(bells);
    co_return result<void>{};
  }

  void connect() {
    world& w = made_->members;
    core_setup setup;
    setup.loop = &loop_;
    setup.rank = w.rank;
    setup.size = w.size;
    setup.epoch = w.epoch;
    setup.selection = selection_;
    setup.hosts = hosts();
    const std::uint32_t last_host = *std::ranges::max_element(setup.hosts);
    setup.selection.hosts_of_several = last_host != 0 && last_host + 1 < setup.hosts.size();
    setup.wires.resize(static_cast<std::size_t>(w.size));
    setup.lines.resize(static_cast<std::size_t>(w.size));
    std::uint32_t position = 0;
    for (peer& p : w.peers) {
      const auto index = static_cast<std::size_t>(p.rank);
      const std::uint32_t here = position;
      if (p.host_mate) ++position;
      if (p.rank == w.rank) continue;
      const bool tcp = !p.data.empty() && p.data.front();
      if (!p.host_mate || tcp) {
        made_->streams.emplace_back(::fcntl(p.data.front().get(), F_DUPFD_CLOEXEC, 0));
        setup.wires[index] = std::make_unique<tcp_wire>(loop_, std::move(p.data.front()));
        continue;
      }
      auto lines = std::make_unique<shm_wire>(
          shm_wire_setup{views_[slot()], views_[here], slot(), here, made_->doorbells[here].get()});
      setup.lines[index] = lines.get();
      setup.wires[index] = std::move(lines);
    }
    made_->inside = std::make_unique<core>(std::move(setup));
    const bool enough = one_cpu_each(cpus_[slot()], cpus_);
    loop_.share_cpus(enough ? cpu_share::one_each : cpu_share::too_few);
    if (enough && loop_.spin_budget() != duration::zero()) views_[slot()].fence_for_mates();
  }

  result<void> start_guard() {
    world& w = made_->members;
    membership_setup setup;
    setup.communicator = w.nonce;
    setup.epoch = w.epoch;
    setup.nonce = w.nonce;
    setup.self = w.rank;
    setup.size = w.size;
    setup.segment = made_->guard_memory.data();
    setup.slot = slot();
    setup.slots = slots();
    setup.bell_fd = owned_fd{own_bell_.release()};
    setup.processes = processes();
    std::uint32_t position = 0;
    for (peer& p : w.peers) {
      if (!p.host_mate) continue;
      const std::uint32_t here = position++;
      if (p.rank == w.rank) continue;
      host_mate mate;
      mate.rank = p.rank;
      mate.slot = here;
      mate.pid = p.pid;
      mate.pidfd = owned_fd{p.process.release()};
      mate.bell_fd = owned_fd{guard_bells_[here].release()};
      mate.eof_fd = owned_fd{::fcntl(p.mate.get(), F_DUPFD_CLOEXEC, 0)};
      setup.mates.push_back(std::move(mate));
    }
    for (const rank_t r : control_neighbours(w.rank, w.size)) {
      peer& p = w.peers[static_cast<std::size_t>(r)];
      if (!p.host_mate) setup.links.push_back({r, owned_fd{p.control.release()}});
    }
    auto joined = guard::process()->join(std::move(setup), *made_->inside);
    if (!joined) return std::move(joined).error();
    made_->inside->guard_with(std::make_unique<membership>(*std::move(joined)));
    return {};
  }

  /// Host and pid name a process, also across communicators.
  [[nodiscard]] std::vector<std::uint64_t> processes() const {
    std::vector<std::uint64_t> names;
    for (const peer& p : made_->members.peers) {
      const pid_t pid = p.rank == made_->members.rank ? ::getpid() : p.pid;
      const std::uint64_t host = std::hash<std::string>{}(p.host_id);
      names.push_back(host * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(pid));
    }
    return names;
  }

  engine& loop_;
  std::unique_ptr<epoch> made_;
  host_exchange among_;
  selection_settings selection_;
  std::vector<allowed_cpus> cpus_;  // by position
  std::vector<shm_segment> views_;
  unique_fd own_bell_;
  std::vector<unique_fd> guard_bells_;
};

}  // namespace

task<assembly> assemble(world members) {
  const environment& here = co_await this_environment{};
  const duration patience = members.config.timeout;
  assembler work{*here.loop, std::move(members)};
  task<result<void>> running = with_timeout(patience, work.run());
  auto done = co_await std::move(running);
  assembly built{work.take(), {}};
  if (!done) {
    built.why_not = std::move(done).error();
    built.made->close(built.why_not);
  }
  co_return built;
}

epoch::~epoch() {
  if (inside) inside->unguard();  // no guard thread calls the GPU's abort after this
  gpu.reset();
}

void epoch::leave() noexcept {
  if (!inside) return;
  inside->leave();
  for (const unique_fd& s : streams) ::shutdown(s.get(), SHUT_WR);
  const auto until = std::chrono::steady_clock::now() + longest_farewell;
  for (const unique_fd& s : streams) see_off(s.get(), until);
}

void epoch::close(error why) noexcept {
  if (inside) inside->close(std::move(why));
  streams.clear();
}

}  // namespace chorale
