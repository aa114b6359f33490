// What ends an engine's sleep from outside: an eventfd with a word in front of it.
//
// ring: any thread, a system call only when nobody has rung since the owner last looked. Other processes that
// were given the fd write to it directly. take: the owner's thread. Who rings publishes its work first; the
// owner looks for work after `take`.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace chorale::detail {

class doorbell {
 public:
  doorbell() noexcept : fd_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {}
  doorbell(const doorbell&) = delete;
  doorbell& operator=(const doorbell&) = delete;
  ~doorbell() {
    if (fd_ >= 0) ::close(fd_);
  }

  /// -1 when the process may open no more files.
  [[nodiscard]] int fd() const noexcept { return fd_; }

  void ring() noexcept {
    if (rung_.exchange(true, std::memory_order_acq_rel)) return;
    const std::uint64_t one = 1;
    // Fails only when the counter is full, and then it is readable anyway.
    [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof one);
  }

  /// Silences the bell. The word first: a ring between the two then writes again, at worst once too often.
  void take() noexcept {
    rung_.exchange(false, std::memory_order_acq_rel);
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(fd_, &count, sizeof count);
  }

 private:
  int fd_;
  std::atomic<bool> rung_{false};
};

}  // namespace chorale::detail
