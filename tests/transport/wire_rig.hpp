// What the tests of wires share: two connected ends of every kind, a receiver that writes down what came, and
// messages whose every byte says where it belongs.
#pragma once

#include <chorale/async/engine.hpp>
#include <chorale/transport/faulty_wire.hpp>
#include <chorale/transport/shm_wire.hpp>
#include <chorale/transport/tcp_wire.hpp>

#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <deque>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace chorale::testing {

enum class medium { shm, socket_pair, loopback };

inline std::ostream& operator<<(std::ostream& out, medium m) {
  return out << (m == medium::shm ? "shm" : m == medium::socket_pair ? "tcp over a socket pair" : "tcp");
}

inline std::vector<backend_kind> usable_backends() {
  std::vector<backend_kind> found;
  for (const auto kind : {backend_kind::io_uring, backend_kind::epoll})
    if (make_backend(kind)) found.push_back(kind);
  return found;
}

/// Zeroed shared memory, as host-mates map it.
class mapping {
 public:
  explicit mapping(std::size_t bytes, int fd = -1)
      : bytes_{bytes},
        at_{::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED,
                   fd, 0)} {
    if (at_ == MAP_FAILED) throw std::runtime_error{"mmap"};
  }
  mapping(const mapping&) = delete;
  mapping& operator=(const mapping&) = delete;
  ~mapping() { ::munmap(at_, bytes_); }
  [[nodiscard]] void* data() const noexcept { return at_; }

 private:
  std::size_t bytes_;
  void* at_;
};

struct shm_memory {
  static constexpr std::uint32_t slots = 2;
  mapping memory_a{shm_segment::bytes(slots)};
  mapping memory_b{shm_segment::bytes(slots)};
  shm_segment a = shm_segment::initialise(memory_a.data(), slots);
  shm_segment b = shm_segment::initialise(memory_b.data(), slots);
};

struct sockets {
  unique_fd a;
  unique_fd b;
};

inline sockets connected(medium m) {
  if (m == medium::socket_pair) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error{"socketpair"};
    return {unique_fd{ends[0]}, unique_fd{ends[1]}};
  }
  unique_fd listener = listen_on(address::loopback(0)).value();
  const address there = local_address(listener.get());
  unique_fd a{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (::connect(a.get(), there.data(), there.size()) != 0) throw std::runtime_error{"connect"};
  unique_fd b;
  while (!b) b.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  int flags = 1;
  ::ioctl(a.get(), FIONBIO, &flags);
  for (const int fd : {a.get(), b.get()}) tune_tcp(fd);
  return {std::move(a), std::move(b)};
}

/// Two ends with an engine each, which nobody runs unless the test does.
struct wire_ends {
  explicit wire_ends(medium m, backend_kind kind = backend_kind::epoll)
      : loop_a{std::make_unique<engine>(engine_options{kind, duration::zero()})},
        loop_b{std::make_unique<engine>(engine_options{kind, duration::zero()})} {
    if (m == medium::shm) {
      memory = std::make_unique<shm_memory>();
      a = std::make_unique<shm_wire>(shm_wire_setup{memory->a, memory->b, 0, 1, loop_b->io().doorbell()});
      b = std::make_unique<shm_wire>(shm_wire_setup{memory->b, memory->a, 1, 0, loop_a->io().doorbell()});
      return;
    }
    sockets both = connected(m);
    fd_a = both.a.get();
    fd_b = both.b.get();
    a = std::make_unique<tcp_wire>(*loop_a, std::move(both.a));
    b = std::make_unique<tcp_wire>(*loop_b, std::move(both.b));
  }
  /// Less than a frame fits into the sockets, so that frames go out in many parts. (TCP answers a receive
  /// buffer much smaller than its segments with pauses.)
  void narrow(medium m) const {
    const int sending = 4096;
    const int receiving = m == medium::loopback ? 64 * 1024 : 4096;
    for (const int fd : {fd_a, fd_b}) {
      ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sending, sizeof sending);
      ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receiving, sizeof receiving);
    }
  }
  void with_faults(std::uint64_t seed) {
    fault_plan plan{.blocked = 300, .again = 200, .late = 300, .short_poll = 400, .no_line = 300};
    plan.seed = 2 * seed + 1;
    a = std::make_unique<faulty_wire>(std::move(a), plan);
    plan.seed = 2 * seed + 2;
    b = std::make_unique<faulty_wire>(std::move(b), plan);
  }

  std::unique_ptr<engine> loop_a;
  std::unique_ptr<engine> loop_b;
  std::unique_ptr<shm_memory> memory;
  int fd_a = -1;
  int fd_b = -1;
  std::unique_ptr<wire> a;
  std::unique_ptr<wire> b;
};

/// Repeats `step` until it returns true; false when that takes longer than any busy machine needs.
template <class Step>
bool soon(Step step) {
  const time_point limit = steady_now() + std::chrono::seconds{30};
  for (int turn = 1;; ++turn) {
    if (step()) return true;
    if (turn % 1000 == 0 && steady_now() > limit) return false;
  }
}

/// The byte that belongs at `offset` of the message with this number.
inline std::byte byte_of(std::uint32_t number, std::uint64_t offset) noexcept {
  return static_cast<std::byte>((number * 0x9e3779b1u + static_cast<std::uint32_t>(offset) * 0x85ebca6bu) >>
                                21);
}

/// A message with memory of its own.
struct test_message {
  test_message(std::uint32_t number, frame_kind kind, std::uint64_t size)
      : memory(carries_payload(kind) ? size : 0) {
    for (std::uint64_t i = 0; i < memory.size(); ++i) memory[i] = byte_of(number, i);
    out.header.kind = kind;
    out.header.sequence = number;
    out.header.lane = number * 7919ull;
    out.header.ticket = ~std::uint64_t{number};
    out.header.channel = static_cast<std::uint16_t>(number);
    out.header.call.count = number;
    out.header.size = size;
    out.data = memory.data();
    out.size = memory.size();
  }
  std::vector<std::byte> memory;
  outgoing out;
};

/// Writes down what comes.
class recorder final : public frame_receiver {
 public:
  struct frame {
    frame_header header;
    std::vector<std::byte> payload;
  };
  std::vector<frame> frames;
  std::vector<tiny_line> lines;
  int breaks = 0;
  error why;
  /// If set, data goes straight to it.
  std::byte* target = nullptr;
  std::uint64_t target_size = 0;
  int direct = 0;
  int misaligned = 0;

  std::byte* direct_target(const frame_header& header) noexcept override {
    return target && header.size <= target_size ? target : nullptr;
  }
  void on_frame(const frame_header& header, const std::byte* payload) noexcept override {
    frame came{header, {}};
    if (carries_payload(header.kind)) {
      const std::byte* from = payload ? payload : target;
      if (!payload) ++direct;
      if (payload && reinterpret_cast<std::uintptr_t>(payload) % frame_alignment != 0) ++misaligned;
      came.payload.assign(from, from + header.size);
    }
    frames.push_back(std::move(came));
  }
  void on_tiny(const tiny_line& line) noexcept override { lines.push_back(line); }
  void on_broken(error cause) noexcept override {
    ++breaks;
    why = std::move(cause);
  }
};

}  // namespace chorale::testing
