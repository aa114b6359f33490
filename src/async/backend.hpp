// The seam between the engine and the operating system: io_uring, epoll, or a simulator behind one interface.
//
// Contract, the same for every backend and held by one conformance suite:
//  - each submitted operation completes exactly once, through the queue given to `reap` or `wait`, never
//    inside `submit` or `cancel`; short counts are allowed;
//  - `cancel` is a request: the operation still completes, with -ECANCELED or with what it had achieved
//    first; that needs no peer; cancelling what has already completed does nothing;
//  - an fd is closed only when no operation refers to it;
//  - operations of one direction on one fd take effect in the order of submission where the backend can
//    choose (epoll); whoever needs an order keeps one in flight;
//  - accept and connect want a non-blocking fd; epoll makes it so where it is not;
//  - `wake` may be called from any thread and ends a concurrent or the next `wait`; everything else belongs
//    to the engine's thread.
#pragma once

#include <chorale/async/clock.hpp>
#include <chorale/async/operation.hpp>
#include <chorale/async/result.hpp>

#include <sys/socket.h>

#include <cstdint>
#include <memory>

namespace chorale {

enum class io_kind : std::uint8_t { accept, connect, send, recv, sendmsg, recvmsg, poll };

/// One request to the kernel. The storage it points to stays valid until it has completed.
struct io_operation : operation {
  explicit io_operation(function what) noexcept : operation{what} {}

  io_kind kind = io_kind::poll;
  bool in_flight = false;  ///< between submit and completion; kept by the backend
  bool cancel_requested = false;
  std::uint8_t stage = 0;  ///< where it is; the backend's own
  int fd = -1;
  int flags = 0;         ///< MSG_* for transfers, SOCK_* for accept, POLL* for poll
  void* data = nullptr;  ///< recv target; send source (not written)
  std::size_t size = 0;
  msghdr* message = nullptr;          ///< sendmsg, recvmsg
  const sockaddr* address = nullptr;  ///< connect
  socklen_t address_size = 0;
  std::int32_t result = 0;       ///< bytes, accepted fd, poll events, or -errno
  io_operation* link = nullptr;  ///< the backend's own list
};

class backend {
 public:
  virtual ~backend() = default;

  virtual void submit(io_operation& op) noexcept = 0;
  virtual void cancel(io_operation& op) noexcept = 0;
  /// Any thread.
  virtual void wake() noexcept = 0;
  /// Hands over what has been submitted and collects what has completed, without blocking.
  virtual std::size_t reap(operation_queue& completed) noexcept = 0;
  /// The same, sleeping until a completion, a wake or `until`.
  virtual std::size_t wait(time_point until, operation_queue& completed) noexcept = 0;
  /// Operations submitted and not yet completed.
  [[nodiscard]] virtual std::size_t outstanding() const noexcept = 0;
  [[nodiscard]] virtual time_point now() const noexcept { return steady_now(); }
  /// An eventfd whose counter ends a `wait` when it rises; -1 where there is none. Owned by the backend.
  [[nodiscard]] virtual int doorbell() const noexcept = 0;
  /// True once a simulated backend was asked to sleep for ever with nothing left that could end it.
  [[nodiscard]] virtual bool stuck() const noexcept { return false; }
  [[nodiscard]] virtual const char* name() const noexcept = 0;
};

enum class backend_kind { automatic, io_uring, epoll };

/// automatic: io_uring where the kernel allows it and has the opcodes, else epoll. There, and only there,
/// CHORALE_BACKEND=io_uring|epoll|auto decides instead.
[[nodiscard]] result<std::unique_ptr<backend>> make_backend(backend_kind kind);
/// `entries`: the size of the submission ring; more operations than that may be in flight.
[[nodiscard]] result<std::unique_ptr<backend>> make_io_uring_backend(unsigned entries = 256);
[[nodiscard]] result<std::unique_ptr<backend>> make_epoll_backend();

}  // namespace chorale
