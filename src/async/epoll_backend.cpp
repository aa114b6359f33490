// The backend over epoll, for kernels and sandboxes without io_uring.
//
// Every operation is tried at the `reap` or `wait` after its submission; what would block waits in its fd's
// queue for that direction, and the fd is armed once per wait (EPOLLONESHOT). Whether an fd is registered is
// never remembered across its idle times: its number may by then belong to another file.
#include <chorale/async/backend.hpp>
#include <chorale/async/doorbell.hpp>
#include <chorale/async/io_list.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <new>
#include <optional>
#include <vector>

namespace chorale {
namespace {

/// io_operation::stage
enum : std::uint8_t { elsewhere, submitted, waiting, connecting };

/// A finished attempt, or nothing when the operation would block.
using attempt = std::optional<std::int32_t>;

attempt outcome_of(ssize_t returned) noexcept {
  if (returned >= 0) return static_cast<std::int32_t>(returned);
  if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
  return -errno;
}

/// Repeats a call that a signal interrupted.
template <class Call>
attempt without_interruption(Call call) noexcept {
  ssize_t returned = 0;
  do returned = call();
  while (returned < 0 && errno == EINTR);
  return outcome_of(returned);
}

void make_non_blocking(int fd) noexcept {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0 && (flags & O_NONBLOCK) == 0) ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/// What is ready on `fd` now, of `events`; POLLERR and POLLHUP always count.
int ready_now(int fd, int events) noexcept {
  pollfd asked{.fd = fd, .events = static_cast<short>(events), .revents = 0};
  return ::poll(&asked, 1, 0) > 0 ? asked.revents : 0;
}

attempt try_poll(const io_operation& op) noexcept {
  const int ready = ready_now(op.fd, op.flags);
  if ((ready & POLLNVAL) != 0) return -EBADF;
  if (ready == 0) return std::nullopt;
  return ready;
}

attempt try_connect(io_operation& op) noexcept {
  if (op.stage == connecting) {
    if (ready_now(op.fd, POLLOUT) == 0) return std::nullopt;
    int failed = 0;
    socklen_t size = sizeof failed;
    if (::getsockopt(op.fd, SOL_SOCKET, SO_ERROR, &failed, &size) != 0) failed = errno;
    return -failed;
  }
  make_non_blocking(op.fd);
  if (::connect(op.fd, op.address, op.address_size) == 0) return 0;
  // An interrupted connect goes on by itself. EAGAIN is a unix listener's full backlog, which no event
  // announces the end of: the caller hears of it.
  if (errno != EINPROGRESS && errno != EINTR) return -errno;
  op.stage = connecting;
  return std::nullopt;
}

attempt try_once(io_operation& op) noexcept {
  const int transfer_flags = op.flags | MSG_DONTWAIT | MSG_NOSIGNAL;
  switch (op.kind) {
    case io_kind::accept:
      make_non_blocking(op.fd);
      return without_interruption([&] { return ::accept4(op.fd, nullptr, nullptr, op.flags); });
    case io_kind::connect:
      return try_connect(op);
    case io_kind::send:
      return without_interruption([&] { return ::send(op.fd, op.data, op.size, transfer_flags); });
    case io_kind::recv:
      return without_interruption([&] { return ::recv(op.fd, op.data, op.size, transfer_flags); });
    case io_kind::sendmsg:
      return without_interruption([&] { return ::sendmsg(op.fd, op.message, transfer_flags); });
    case io_kind::recvmsg:
      return without_interruption([&] { return ::recvmsg(op.fd, op.message, transfer_flags); });
    case io_kind::poll:
      return try_poll(op);
  }
  return -EINVAL;
}

enum direction : std::size_t { reading, writing, polling, directions };

direction direction_of(const io_operation& op) noexcept {
  switch (op.kind) {
    case io_kind::accept:
    case io_kind::recv:
    case io_kind::recvmsg:
      return reading;
    case io_kind::poll:
      return polling;
    default:
      return writing;
  }
}

/// Who waits on one fd.
struct fd_queues {
  std::array<detail::io_list, directions> lists;
  std::uint32_t armed = 0;  // what the kernel will report; 0 when nobody waits

  [[nodiscard]] bool idle() const noexcept {
    return lists[reading].empty() && lists[writing].empty() && lists[polling].empty();
  }
  [[nodiscard]] std::uint32_t wanted() const noexcept {
    std::uint32_t events = EPOLLONESHOT;
    if (!lists[reading].empty()) events |= EPOLLIN | EPOLLRDHUP;
    if (!lists[writing].empty()) events |= EPOLLOUT;
    lists[polling].each([&](const io_operation& op) { events |= static_cast<std::uint32_t>(op.flags); });
    return events;
  }
};

class epoll_backend final : public backend {
 public:
  result<> open() {
    if (bell_.fd() < 0) return error::from_os(errno, "eventfd for the engine's doorbell");
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) return error::from_os(errno, "epoll_create1");
    epoll_event bell{.events = EPOLLIN, .data = {.fd = bell_.fd()}};
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, bell_.fd(), &bell) != 0)
      return error::from_os(errno, "epoll_ctl for the engine's doorbell");
    return {};
  }

  epoll_backend() = default;
  epoll_backend(const epoll_backend&) = delete;
  epoll_backend& operator=(const epoll_backend&) = delete;
  ~epoll_backend() override {
    assert(outstanding_ == 0 && "a backend is destroyed with operations in flight");
    if (epoll_ >= 0) ::close(epoll_);
  }

  void submit(io_operation& op) noexcept override {
    assert(!op.in_flight);
    op.in_flight = true;
    op.cancel_requested = false;
    op.stage = submitted;
    ++outstanding_;
    submitted_.push(op);
  }

  void cancel(io_operation& op) noexcept override {
    if (!op.in_flight || op.cancel_requested) return;
    op.cancel_requested = true;
    if (op.stage == submitted) return;  // `try_submitted` ends it
    fd_queues& at = queues_[static_cast<std::size_t>(op.fd)];
    at.lists[direction_of(op)].remove(op);
    if (at.idle()) at.armed = 0;
    --waiting_;
    cancelled_.push(op);
  }

  void wake() noexcept override { bell_.ring(); }

  std::size_t reap(operation_queue& completed) noexcept override {
    const std::size_t before = completed.size();
    try_submitted(completed);
    if (waiting_ != 0) collect(duration::zero(), completed);
    return completed.size() - before;
  }

  std::size_t wait(time_point until, operation_queue& completed) noexcept override {
    const std::size_t before = completed.size();
    for (;;) {
      try_submitted(completed);
      const bool done = woken_ || completed.size() != before;
      const auto left = until == never ? never - time_point{} : until - steady_now();
      collect(done ? duration::zero() : std::max(left, duration::zero()), completed);
      if (std::exchange(woken_, false) || completed.size() != before || left <= duration::zero())
        return completed.size() - before;
    }
  }

  [[nodiscard]] std::size_t outstanding() const noexcept override { return outstanding_; }
  [[nodiscard]] int doorbell() const noexcept override { return bell_.fd(); }
  [[nodiscard]] const char* name() const noexcept override { return "epoll"; }

 private:
  void try_submitted(operation_queue& completed) noexcept {
    while (!cancelled_.empty()) finish(cancelled_.pop(), -ECANCELED, completed);
    while (!submitted_.empty()) {
      io_operation& op = submitted_.pop();
      if (op.cancel_requested)
        finish(op, -ECANCELED, completed);
      else
        try_first(op, completed);
    }
  }

  void try_first(io_operation& op, operation_queue& completed) noexcept {
    const auto index = static_cast<std::size_t>(op.fd);
    if (op.fd < 0 || !reserve(index)) return finish(op, op.fd < 0 ? -EBADF : -ENOMEM, completed);
    detail::io_list& list = queues_[index].lists[direction_of(op)];
    // Behind others of its direction it waits its turn; polls have none.
    if (list.empty() || op.kind == io_kind::poll) {
      if (const attempt got = try_once(op)) return finish(op, *got, completed);
    }
    if (op.stage != connecting) op.stage = waiting;
    list.push(op);
    ++waiting_;
    arm(op.fd, completed);
  }

  bool reserve(std::size_t index) noexcept {
    try {
      if (index >= queues_.size()) queues_.resize(index + 1);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  /// Asks the kernel for the events the fd's queues want, unless it already will report them.
  void arm(int fd, operation_queue& completed) noexcept {
    fd_queues& at = queues_[static_cast<std::size_t>(fd)];
    if (at.idle()) return;
    const std::uint32_t wanted = at.wanted();
    if ((at.armed & wanted) == wanted) return;
    epoll_event event{.events = wanted, .data = {.fd = fd}};
    int failed = ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
    if (failed != 0 && errno == ENOENT) failed = ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    at.armed = wanted;
    if (failed != 0) fail_all(at, -errno, completed);
  }

  void fail_all(fd_queues& at, std::int32_t outcome, operation_queue& completed) noexcept {
    for (auto& list : at.lists) {
      while (!list.empty()) {
        --waiting_;
        finish(list.pop(), outcome, completed);
      }
    }
    at.armed = 0;
  }

  /// Sleeps for at most `patience` and moves on whatever has become ready.
  void collect(duration patience, operation_queue& completed) noexcept {
    std::array<epoll_event, 64> events;
    int count = 0;
    do {
      count = wait_for_events(events, patience);
      for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == bell_.fd()) {
          bell_.take();
          woken_ = true;
        } else {
          became_ready(fd, completed);
        }
      }
      patience = duration::zero();
    } while (count == static_cast<int>(events.size()));
  }

  void became_ready(int fd, operation_queue& completed) noexcept {
    fd_queues& at = queues_[static_cast<std::size_t>(fd)];
    if (at.idle()) return;  // its operations were cancelled meanwhile
    at.armed = 0;
    for (const direction d : {reading, writing}) {
      detail::io_list& list = at.lists[d];
      while (!list.empty()) {
        const attempt got = try_once(list.front());
        if (!got) break;
        --waiting_;
        finish(list.pop(), *got, completed);
      }
    }
    retry_polls(at.lists[polling], completed);
    arm(fd, completed);
  }

  void retry_polls(detail::io_list& polls, operation_queue& completed) noexcept {
    detail::io_list still_waiting;
    while (!polls.empty()) {
      io_operation& op = polls.pop();
      if (const attempt got = try_poll(op)) {
        --waiting_;
        finish(op, *got, completed);
      } else {
        still_waiting.push(op);
      }
    }
    polls = still_waiting;
  }

  int wait_for_events(std::array<epoll_event, 64>& events, duration patience) noexcept {
    constexpr auto for_ever = never - time_point{};
    const auto room = static_cast<int>(events.size());
    if (patience == duration::zero()) return ::epoll_wait(epoll_, events.data(), room, 0);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience);
    const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (patience - seconds).count()};
    const timespec* timeout = patience == for_ever ? nullptr : &limit;
    if (precise_wait_) {
      const int count = ::epoll_pwait2(epoll_, events.data(), room, timeout, nullptr);
      if (count >= 0 || errno == EINTR) return count;
      precise_wait_ = false;
    }
    // Older kernels and filters: nanoseconds from ppoll on the epoll fd itself.
    pollfd self{.fd = epoll_, .events = POLLIN, .revents = 0};
    if (::ppoll(&self, 1, timeout, nullptr) <= 0) return 0;
    return ::epoll_wait(epoll_, events.data(), room, 0);
  }

  void finish(io_operation& op, std::int32_t outcome, operation_queue& into) noexcept {
    op.result = outcome;
    op.in_flight = false;
    op.stage = elsewhere;
    --outstanding_;
    into.push(op);
  }

  int epoll_ = -1;
  detail::doorbell bell_;
  detail::io_list submitted_;
  detail::io_list cancelled_;      // after they had waited
  std::vector<fd_queues> queues_;  // by fd; grows with the highest number seen
  std::size_t outstanding_ = 0;
  std::size_t waiting_ = 0;  // in queues_
  bool precise_wait_ = true;
  bool woken_ = false;
};

}  // namespace

result<std::unique_ptr<backend>> make_epoll_backend() {
  auto made = std::make_unique<epoll_backend>();
  if (auto opened = made->open(); !opened) return std::move(opened).error();
  return std::unique_ptr<backend>{std::move(made)};
}

}  // namespace chorale
