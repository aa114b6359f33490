// The control thread: sleeps in epoll until a control link has something to read or room to write.
//
// It knows links by number, never by address: a membership may end between the event and its handling. The
// handler runs on the control thread and takes the guard's lock itself; `add`, `update` and `remove` may be
// called from any thread.
#pragma once

#include <chorale/transport/guard/control_link.hpp>
#include <chorale/transport/guard/owned_fd.hpp>
#include <chorale/transport/guard/plain_thread.hpp>

#include <cstdint>
#include <functional>

namespace chorale::guarding {

class control_loop {
 public:
  /// Starts the thread; throws `failure`.
  explicit control_loop(std::function<void(std::uint64_t link)> handler);
  ~control_loop();

  /// Throws `failure` when the kernel cannot watch it.
  void add(const control_link& link);
  /// Watches for room exactly while frames are queued.
  void update(const control_link& link) noexcept;
  void remove(const control_link& link) noexcept;
  /// In a fork child: the thread is not there.
  void forget() noexcept { thread_.forget(); }

 private:
  void run();

  std::function<void(std::uint64_t)> handler_;
  owned_fd epoll_;
  owned_fd stop_;
  plain_thread thread_;
};

}  // namespace chorale::guarding
