// The backend over io_uring. Everything the kernel offers is tried and replaced where refused; no version
// number is looked at.
//
// user_data is the operation's address; the two smallest values are ours. Submissions gather in the ring and
// go out with the next `reap` or `wait`; what finds the ring full waits in a list. The doorbell is watched by
// a multishot poll. A `reap` with nothing to hand over and nothing flagged by the kernel makes no system
// call.
#include <chorale/async/backend.hpp>
#include <chorale/async/doorbell.hpp>
#include <chorale/async/io_list.hpp>

#include <liburing.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cassert>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

namespace chorale {
namespace {

constexpr std::uint64_t nobodys = 0;
constexpr std::uint64_t doorbells = 1;

/// io_operation::stage
enum : std::uint8_t { elsewhere, awaits_space, in_kernel, cancel_awaits_space };

error refused(int os_code, const char* call) {
  return error{errc::unsupported, std::string{"io_uring is not usable here ("} + call + ": " +
                                      std::strerror(os_code) + "); use the epoll backend"};
}

/// A ring that is given back at the end of its scope.
class scoped_ring {
 public:
  scoped_ring() = default;
  scoped_ring(const scoped_ring&) = delete;
  scoped_ring& operator=(const scoped_ring&) = delete;
  ~scoped_ring() {
    if (open_) io_uring_queue_exit(&ring_);
  }
  /// 0 or -errno.
  int open(unsigned entries, unsigned flags) noexcept {
    io_uring_params params{};
    params.flags = flags | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
    params.cq_entries = 16 * entries;
    const int failed = io_uring_queue_init_params(entries, &ring_, &params);
    open_ = failed == 0;
    features_ = params.features;
    return failed;
  }
  [[nodiscard]] io_uring* get() noexcept { return &ring_; }
  [[nodiscard]] bool has(unsigned feature) const noexcept { return (features_ & feature) != 0; }

 private:
  io_uring ring_{};
  unsigned features_ = 0;
  bool open_ = false;
};

/// io_uring_enable_rings by hand: liburing 2.3 declares it and its shared library lacks it.
int enable_ring(io_uring& ring) noexcept {
  const auto failed =
      ::syscall(__NR_io_uring_register, ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  return failed < 0 ? -errno : 0;
}

/// Sends one request through a ring of its own: sandboxes are known to allow set-up and refuse the rest.
result<> prove_io_uring() {
  scoped_ring ring;
  if (const int failed = ring.open(4, 0)) return refused(-failed, "io_uring_setup");
  if (!ring.has(IORING_FEAT_EXT_ARG) || !ring.has(IORING_FEAT_NODROP))
    return refused(ENOSYS, "waiting with a timeout");
  io_uring_probe* probe = io_uring_get_probe_ring(ring.get());
  if (!probe) return refused(EPERM, "io_uring_register");
  const char* missing = nullptr;
  const auto require = [&](int opcode, const char* name) {
    if (!io_uring_opcode_supported(probe, opcode)) missing = name;
  };
  require(IORING_OP_ACCEPT, "accept");
  require(IORING_OP_CONNECT, "connect");
  require(IORING_OP_SEND, "send");
  require(IORING_OP_RECV, "recv");
  require(IORING_OP_SENDMSG, "sendmsg");
  require(IORING_OP_RECVMSG, "recvmsg");
  require(IORING_OP_POLL_ADD, "poll");
  require(IORING_OP_ASYNC_CANCEL, "cancel");
  io_uring_free_probe(probe);
  if (missing) return refused(EOPNOTSUPP, missing);
  io_uring_prep_nop(io_uring_get_sqe(ring.get()));
  const int sent = io_uring_submit_and_wait(ring.get(), 1);
  return sent < 0 ? result<>{refused(-sent, "io_uring_enter")} : result<>{};
}

class io_uring_backend final : public backend {
 public:
  result<> open(unsigned entries) {
    if (bell_.fd() < 0) return error::from_os(errno, "eventfd for the engine's doorbell");
    if (auto proved = prove_io_uring(); !proved) return proved;
    // Best first: completions are then made ready by this thread alone and only when it asks, which spares
    // interrupts and locks.
    constexpr unsigned choices[] = {
        IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
            IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
        0,
    };
    int failed = 0;
    for (const unsigned flags : choices) {
      failed = ring_.open(entries, flags);
      if (failed == 0) {
        enabled_ = (flags & IORING_SETUP_R_DISABLED) == 0;
        return {};
      }
      if (failed != -EINVAL) break;
    }
    return error::from_os(-failed, "io_uring_setup");
  }

  ~io_uring_backend() override {
    assert(outstanding_ == 0 && "a backend is destroyed with operations in flight");
  }

  void submit(io_operation& op) noexcept override {
    assert(!op.in_flight);
    op.in_flight = true;
    op.cancel_requested = false;
    ++outstanding_;
    io_uring_sqe* entry = unsent_.empty() ? io_uring_get_sqe(ring_.get()) : nullptr;
    if (entry) {
      prepare(*entry, op);
    } else {
      op.stage = awaits_space;
      unsent_.push(op);
    }
  }

  void cancel(io_operation& op) noexcept override {
    if (!op.in_flight || op.cancel_requested) return;
    op.cancel_requested = true;
    if (op.stage != in_kernel) return;  // `fill` ends it
    if (io_uring_sqe* entry = uncancelled_.empty() ? io_uring_get_sqe(ring_.get()) : nullptr) {
      prepare_cancel(*entry, op);
    } else {
      op.stage = cancel_awaits_space;
      uncancelled_.push(op);
    }
  }

  void wake() noexcept override { bell_.ring(); }

  std::size_t reap(operation_queue& completed) noexcept override {
    enable();
    std::size_t count = 0;
    do {
      fill();
      if (io_uring_sq_ready(ring_.get()) != 0)
        check(io_uring_submit_and_get_events(ring_.get()));
      else if (kernel_has_work())
        check(io_uring_get_events(ring_.get()));
      count += harvest(completed);
      // A kernel short of memory may have taken nothing: the next turn tries again.
    } while (something_awaits_space() && io_uring_sq_space_left(ring_.get()) != 0);
    return count;
  }

  std::size_t wait(time_point until, operation_queue& completed) noexcept override {
    for (;;) {
      const std::size_t count = reap(completed);
      if (std::exchange(woken_, false) || count != 0) return count;
      io_uring_cqe* entry = nullptr;
      if (until == never) {
        check(io_uring_submit_and_wait_timeout(ring_.get(), &entry, 1, nullptr, nullptr));
        continue;
      }
      const auto left = until - steady_now();
      if (left <= duration::zero()) return 0;
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
      __kernel_timespec timeout{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
      check(io_uring_submit_and_wait_timeout(ring_.get(), &entry, 1, &timeout, nullptr));
    }
  }

  [[nodiscard]] std::size_t outstanding() const noexcept override { return outstanding_; }
  [[nodiscard]] int doorbell() const noexcept override { return bell_.fd(); }
  [[nodiscard]] const char* name() const noexcept override { return "io_uring"; }

 private:
  /// On the engine's thread, which becomes the ring's only submitter.
  void enable() noexcept {
    if (enabled_) return;
    check(enable_ring(*ring_.get()));
    enabled_ = true;
  }

  void watch_bell() noexcept {
    io_uring_sqe* entry = io_uring_get_sqe(ring_.get());
    if (!entry) return;
    if (multishot_)
      io_uring_prep_poll_multishot(entry, bell_.fd(), POLLIN);
    else
      io_uring_prep_poll_add(entry, bell_.fd(), POLLIN);
    io_uring_sqe_set_data64(entry, doorbells);
    watching_bell_ = true;
  }

  static void prepare_cancel(io_uring_sqe& entry, io_operation& op) noexcept {
    io_uring_prep_cancel(&entry, &op, 0);
    io_uring_sqe_set_data64(&entry, nobodys);
    op.stage = in_kernel;
  }

  static void prepare(io_uring_sqe& entry, io_operation& op) noexcept {
    // Without MSG_DONTWAIT: it would turn "not yet" into a failure instead of a wait.
    const unsigned transfer_flags =
        (static_cast<unsigned>(op.flags) | MSG_NOSIGNAL) & ~unsigned{MSG_DONTWAIT};
    switch (op.kind) {
      case io_kind::accept:
        io_uring_prep_accept(&entry, op.fd, nullptr, nullptr, op.flags);
        break;
      case io_kind::connect:
        io_uring_prep_connect(&entry, op.fd, op.address, op.address_size);
        break;
      case io_kind::send:
        io_uring_prep_send(&entry, op.fd, op.data, op.size, static_cast<int>(transfer_flags));
        break;
      case io_kind::recv:
        io_uring_prep_recv(&entry, op.fd, op.data, op.size, static_cast<int>(transfer_flags));
        break;
      case io_kind::sendmsg:
        io_uring_prep_sendmsg(&entry, op.fd, op.message, transfer_flags);
        break;
      case io_kind::recvmsg:
        io_uring_prep_recvmsg(&entry, op.fd, op.message, transfer_flags);
        break;
      case io_kind::poll:
        io_uring_prep_poll_add(&entry, op.fd, static_cast<unsigned>(op.flags));
        break;
    }
    io_uring_sqe_set_data(&entry, &op);
    op.stage = in_kernel;
  }

  [[nodiscard]] bool something_awaits_space() const noexcept {
    return !unsent_.empty() || !uncancelled_.empty() || !watching_bell_;
  }

  /// Moves what waits for space into the ring, as far as it goes.
  void fill() noexcept {
    if (!watching_bell_) watch_bell();
    while (!uncancelled_.empty()) {
      io_uring_sqe* entry = io_uring_get_sqe(ring_.get());
      if (!entry) return;
      prepare_cancel(*entry, uncancelled_.pop());
    }
    while (!unsent_.empty()) {
      if (unsent_.front().cancel_requested) {
        finish(unsent_.pop(), -ECANCELED, never_sent_);
        continue;
      }
      io_uring_sqe* entry = io_uring_get_sqe(ring_.get());
      if (!entry) return;
      prepare(*entry, unsent_.pop());
    }
  }

  [[nodiscard]] bool kernel_has_work() noexcept {
    return (IO_URING_READ_ONCE(*ring_.get()->sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
  }

  std::size_t harvest(operation_queue& completed) noexcept {
    std::size_t count = never_sent_.size();
    while (!never_sent_.empty()) completed.push(never_sent_.pop());
    unsigned head = 0;
    unsigned seen = 0;
    io_uring_cqe* entry = nullptr;
    io_uring_for_each_cqe(ring_.get(), head, entry) {
      ++seen;
      if (entry->user_data == nobodys) continue;
      if (entry->user_data == doorbells) {
        bell_rang(*entry);
        continue;
      }
      auto& op = *reinterpret_cast<io_operation*>(entry->user_data);
      if (op.stage == cancel_awaits_space) uncancelled_.remove(op);
      finish(op, entry->res, completed);
      ++count;
    }
    io_uring_cq_advance(ring_.get(), seen);
    return count;
  }

  void bell_rang(const io_uring_cqe& entry) noexcept {
    if ((entry.flags & IORING_CQE_F_MORE) == 0) watching_bell_ = false;
    if (entry.res == -EINVAL && std::exchange(multishot_, false)) return;
    check(entry.res);
    bell_.take();
    woken_ = true;
  }

  void finish(io_operation& op, std::int32_t outcome, operation_queue& into) noexcept {
    op.result = outcome;
    op.in_flight = false;
    op.stage = elsewhere;
    --outstanding_;
    into.push(op);
  }

  /// Passing conditions are retried by the loops above; anything else means that the ring can not go on, and
  /// every await on it would hang.
  static void check(int outcome) noexcept {
    if (outcome >= 0 || outcome == -ETIME || outcome == -EINTR || outcome == -EAGAIN || outcome == -EBUSY ||
        outcome == -ENOMEM)
      return;
    std::fprintf(stderr, "chorale: io_uring stopped working: %s; set CHORALE_BACKEND=epoll\n",
                 std::strerror(-outcome));
    std::terminate();
  }

  scoped_ring ring_;
  detail::doorbell bell_;
  detail::io_list unsent_;
  detail::io_list uncancelled_;
  operation_queue never_sent_;  // cancelled before the kernel saw them
  std::size_t outstanding_ = 0;
  bool enabled_ = false;
  bool watching_bell_ = false;
  bool multishot_ = true;
  bool woken_ = false;
};

}  // namespace

result<std::unique_ptr<backend>> make_io_uring_backend(unsigned entries) {
  auto made = std::make_unique<io_uring_backend>();
  if (auto opened = made->open(entries); !opened) return std::move(opened).error();
  return std::unique_ptr<backend>{std::move(made)};
}

}  // namespace chorale
