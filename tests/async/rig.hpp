// What the tests of src/async share: pairs of connected fds, backends by name, a driver that counts
// completions.
#pragma once

#include <chorale/async/backend.hpp>

#include <boost/test/unit_test.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace chorale::testing {

using namespace std::chrono_literals;

/// An fd that closes itself.
class file {
 public:
  explicit file(int fd = -1) noexcept : fd_{fd} {}
  file(file&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  file& operator=(file&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~file() { close(); }
  void close() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  operator int() const noexcept { return fd_; }  // NOLINT(google-explicit-constructor)

 private:
  int fd_;
};

struct socket_pair {
  explicit socket_pair(int type = SOCK_STREAM | SOCK_NONBLOCK) {
    int ends[2] = {-1, -1};
    BOOST_REQUIRE_EQUAL(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends), 0);
    a = file{ends[0]};
    b = file{ends[1]};
  }
  file a;
  file b;
};

/// The kernel's backends, one of them with a ring so small that most submissions have to wait for space.
enum class candidate { io_uring, small_io_uring, epoll };

inline std::ostream& operator<<(std::ostream& out, candidate c) {
  constexpr const char* names[] = {"io_uring", "io_uring with 4 entries", "epoll"};
  return out << names[static_cast<int>(c)];
}

inline result<std::unique_ptr<backend>> make(candidate c) {
  if (c == candidate::epoll) return make_epoll_backend();
  return make_io_uring_backend(c == candidate::io_uring ? 256 : 4);
}

/// Those that this machine or sandbox allows.
inline std::vector<candidate> available_backends() {
  std::vector<candidate> found;
  for (const auto c : {candidate::io_uring, candidate::small_io_uring, candidate::epoll})
    if (make(c)) found.push_back(c);
  return found;
}

struct request : io_operation {
  explicit request(io_kind what, int on) noexcept : io_operation{count} {
    kind = what;
    fd = on;
  }
  request(io_kind what, int on, void* bytes, std::size_t count_of_bytes) noexcept : request{what, on} {
    data = bytes;
    size = count_of_bytes;
  }
  int completions = 0;

 private:
  static void count(operation& op) noexcept {
    ++static_cast<request&>(static_cast<io_operation&>(op)).completions;
  }
};

/// A backend and the loop an engine would run around it.
class rig {
 public:
  explicit rig(candidate c) : io_{make(c).value()} {}
  [[nodiscard]] backend& io() noexcept { return *io_; }

  std::size_t reap() {
    io_->reap(done_);
    return run_done();
  }
  std::size_t wait(time_point until) {
    io_->wait(until, done_);
    return run_done();
  }
  /// Waits for `wanted` completions of `r`; fails the test if they do not come.
  void settle(request& r, int wanted = 1) {
    settle_until([&] { return r.completions >= wanted; });
    BOOST_REQUIRE_EQUAL(r.completions, wanted);
  }
  template <class Predicate>
  void settle_until(Predicate done) {
    const time_point limit = steady_now() + 20s;
    while (!done() && steady_now() < limit) wait(limit);
    BOOST_REQUIRE(done());
  }
  std::int32_t run(request& r) {
    io_->submit(r);
    settle(r, r.completions + 1);
    return r.result;
  }

 private:
  std::size_t run_done() {
    const std::size_t count = done_.size();
    while (!done_.empty()) done_.pop().run();
    return count;
  }
  std::unique_ptr<backend> io_;
  operation_queue done_;
};

}  // namespace chorale::testing
