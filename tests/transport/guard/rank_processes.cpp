#include "rank_processes.hpp"

#include "child_end.hpp"
#include <chorale/transport/guard/neighbours.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <utility>

namespace guard_test {

using chorale::rank_t;
namespace guarding = chorale::guarding;

namespace {

void* shared_memory(std::size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::runtime_error{"mmap"};
  return p;
}

std::pair<int, int> unix_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error{"socketpair"};
  return {ends[0], ends[1]};
}

std::pair<int, int> tcp_pair() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener, generic, length) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, generic, &length) != 0)
    throw std::runtime_error{"listen"};
  const int a = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(a, generic, length) != 0) throw std::runtime_error{"connect"};
  const int b = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  ::close(listener);
  return {a, b};
}

void close_fd(int& fd) noexcept {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

void write_down(notice& n, const chorale::revoke& r) noexcept {
  n.cause = static_cast<std::int32_t>(r.cause);
  n.culprit = r.culprit;
  n.origin = r.origin;
  n.detail = r.detail;
  n.lane = r.lane;
  n.ticket = r.ticket;
  n.at = now_ns();
}

/// Boost.Test catches these to report them; in a rank they must do what they do to users.
void default_signals() noexcept {
  for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP, SIGALRM, SIGTERM})
    ::signal(s, SIG_DFL);
}

}  // namespace

std::int64_t now_ns() noexcept { return clock::now().time_since_epoch().count(); }

std::vector<int> one_host(int ranks) { return std::vector<int>(static_cast<std::size_t>(ranks), 0); }

void counter::set(std::uint32_t value) noexcept {
  word_.store(value);
  guarding::futex_wake(word_);
}

void counter::add_one() noexcept {
  word_.fetch_add(1);
  guarding::futex_wake(word_);
}

bool counter::reaches(std::uint32_t value, std::chrono::nanoseconds limit) const noexcept {
  const auto until = clock::now() + limit;
  for (;;) {
    const auto seen = word_.load();
    if (seen >= value) return true;
    const std::chrono::nanoseconds left = until - clock::now();
    if (left <= 0ns) return false;
    const timespec wait{static_cast<time_t>(left / 1s), static_cast<long>((left % 1s).count())};
    ::syscall(SYS_futex, &word_, FUTEX_WAIT, seen, &wait, nullptr, 0);
  }
}

void sink::on_cause(const chorale::revoke& r) noexcept {
  if (r.scope == chorale::revoke_scope::all) {
    write_down(report_.first, r);
    report_.causes.add_one();
    return;
  }
  const auto index = report_.lane_causes.get();
  if (index < most_lane_revokes) write_down(report_.lanes[index], r);
  report_.lane_causes.add_one();
}

void sink::on_left(rank_t who, std::uint64_t last_ticket) noexcept {
  report_.left_ticket[static_cast<std::size_t>(who)] = last_ticket + 1;
  report_.leavings.add_one();
}

report& rank_process::mine() noexcept { return world_.of(rank_); }

chorale::membership rank_process::join(std::size_t which) {
  if (!sink_) sink_.emplace(mine());
  return join(which, *sink_);
}

chorale::membership rank_process::join(std::size_t which, sink& s) {
  const auto guard = chorale::guard::process(world_.options_.guard);
  auto m = guard->join(world_.setup_for(rank_, which), s);
  if (!m) throw chorale::failure{m.error()};
  mine().joined.add_one();
  return std::move(*m);
}

void rank_process::await_order(std::uint32_t n) {
  if (!mine().order.reaches(n, 60s)) throw std::runtime_error{"no order came"};
}

int rank_process::link_to(rank_t peer) const noexcept {
  for (const auto& l : world_.communicators_[0].links) {
    if (l.a == rank_ && l.b == peer) return l.end_a;
    if (l.b == rank_ && l.a == peer) return l.end_b;
  }
  return -1;
}

world::world(world_options options, std::size_t communicators)
    : options_{std::move(options)},
      board_{new(shared_memory(sizeof(board))) board},
      communicators_(communicators),
      reaped_(options_.hosts.size(), true) {
  for (auto& c : communicators_) prepare(c);
}

void world::prepare(communicator& c) {
  const auto hosts = *std::max_element(options_.hosts.begin(), options_.hosts.end()) + 1;
  const auto epoch = static_cast<std::uint64_t>(&c - communicators_.data()) + 1;
  for (int h = 0; h < hosts; ++h) {
    const auto slots =
        static_cast<std::uint32_t>(std::count(options_.hosts.begin(), options_.hosts.end(), h));
    void* memory = shared_memory(chorale::guard_segment::bytes(slots));
    static_cast<void>(chorale::guard_segment::initialise(memory, slots, epoch, 77 + epoch));
    c.segments.push_back(memory);
  }
  for (rank_t a = 0; a < size(); ++a) {
    c.bells.push_back(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    const auto host = options_.hosts[static_cast<std::size_t>(a)];
    for (const rank_t b : chorale::control_neighbours(a, size())) {
      if (b < a || host == options_.hosts[static_cast<std::size_t>(b)]) continue;
      const auto [x, y] = options_.links == link_type::tcp ? tcp_pair() : unix_pair();
      c.links.push_back({a, b, x, y});
    }
    for (rank_t b = a + 1; b < size(); ++b) {
      if (!options_.pidfd_and_eof || host != options_.hosts[static_cast<std::size_t>(b)]) continue;
      const auto [x, y] = unix_pair();
      c.eof_sockets.push_back({a, b, x, y});
    }
  }
}

chorale::membership_setup world::setup_for(rank_t rank, std::size_t which) {
  auto& c = communicators_[which];
  const auto& hosts = options_.hosts;
  const auto host = hosts[static_cast<std::size_t>(rank)];
  auto slot_of = [&hosts, host](rank_t r) {
    return static_cast<std::uint32_t>(std::count(hosts.begin(), hosts.begin() + r, host));
  };
  chorale::membership_setup s;
  s.communicator = 100 + which;
  s.epoch = which + 1;
  s.nonce = 77 + s.epoch;
  s.self = rank;
  s.size = size();
  s.segment = c.segments[static_cast<std::size_t>(host)];
  s.slot = slot_of(rank);
  s.slots = static_cast<std::uint32_t>(std::count(hosts.begin(), hosts.end(), host));
  s.bell_fd = chorale::owned_fd{::fcntl(c.bells[static_cast<std::size_t>(rank)], F_DUPFD_CLOEXEC, 0)};
  for (rank_t r = 0; r < size(); ++r) {
    if (options_.shared_process_keys) s.processes.push_back(1000 + static_cast<std::uint64_t>(r));
    if (r == rank || hosts[static_cast<std::size_t>(r)] != host) continue;
    chorale::host_mate m;
    m.rank = r;
    m.slot = slot_of(r);
    m.pid = pid(r);
    m.bell_fd = chorale::owned_fd{::fcntl(c.bells[static_cast<std::size_t>(r)], F_DUPFD_CLOEXEC, 0)};
    for (auto& l : c.eof_sockets) {
      if (l.a == rank && l.b == r) m.eof_fd = chorale::owned_fd{std::exchange(l.end_a, -1)};
      if (l.b == rank && l.a == r) m.eof_fd = chorale::owned_fd{std::exchange(l.end_b, -1)};
    }
    s.mates.push_back(std::move(m));
  }
  for (auto& l : c.links) {
    if (l.a == rank) s.links.push_back({l.b, chorale::owned_fd{std::exchange(l.end_a, -1)}});
    if (l.b == rank) s.links.push_back({l.a, chorale::owned_fd{std::exchange(l.end_b, -1)}});
  }
  return s;
}

void world::keep_only(rank_t rank) noexcept {
  for (auto& c : communicators_) {
    for (auto* list : {&c.links, &c.eof_sockets}) {
      for (auto& l : *list) {
        if (l.a != rank) close_fd(l.end_a);
        if (l.b != rank) close_fd(l.end_b);
      }
    }
  }
}

void world::close_all() noexcept {
  keep_only(chorale::no_rank);
  for (auto& c : communicators_)
    for (auto& b : c.bells) close_fd(b);
}

void world::run(const body& f) {
  std::cout.flush();
  std::fflush(nullptr);  // or a child that a sanitizer ends prints it again
  for (rank_t rank = 0; rank < size(); ++rank) {
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error{"fork"};
    if (child > 0) {
      board_->pids[static_cast<std::size_t>(rank)] = child;
      reaped_[static_cast<std::size_t>(rank)] = false;
      continue;
    }
    default_signals();
    keep_only(rank);
    int status = 0;
    try {
      if (!board_->start.reaches(1, 60s)) throw std::runtime_error{"no start"};
      rank_process me{*this, rank};
      f(me);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
      status = 99;
    }
    ::_exit(status);
  }
  close_all();
  board_->start.set(1);
}

world::~world() {
  for (rank_t r = 0; r < size(); ++r) {
    if (reaped_[static_cast<std::size_t>(r)]) continue;
    ::kill(pid(r), SIGKILL);
    ::waitpid(pid(r), nullptr, 0);
  }
  close_all();
  for (auto& c : communicators_) {
    for (std::size_t h = 0; h < c.segments.size(); ++h) {
      const auto slots = std::count(options_.hosts.begin(), options_.hosts.end(), static_cast<int>(h));
      ::munmap(c.segments[h], chorale::guard_segment::bytes(static_cast<std::uint32_t>(slots)));
    }
  }
  ::munmap(board_, sizeof(board));
}

bool world::all_joined(std::chrono::nanoseconds limit) {
  for (rank_t r = 0; r < size(); ++r)
    if (!of(r).joined.reaches(static_cast<std::uint32_t>(communicators_.size()), limit)) return false;
  return true;
}

void world::order_all(std::uint32_t n) {
  for (rank_t r = 0; r < size(); ++r) of(r).order.set(n);
}

std::optional<int> world::ended(rank_t rank, std::chrono::nanoseconds limit) {
  if (!chorale::testing::ends_within(pid(rank), limit)) return std::nullopt;
  int status = 0;
  ::waitpid(pid(rank), &status, 0);
  reaped_[static_cast<std::size_t>(rank)] = true;
  return status;
}

bool world::all_ended_well(std::vector<rank_t> except) {
  bool well = true;
  for (rank_t r = 0; r < size(); ++r) {
    if (std::find(except.begin(), except.end(), r) != except.end()) continue;
    const auto status = ended(r);
    if (status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0) continue;
    std::fprintf(stderr, "rank %d ended with status %d\n", r, status.value_or(-1));
    well = false;
  }
  return well;
}

}  // namespace guard_test
