#include <chorale/transport/guard/doorbell.hpp>

#include <sys/eventfd.h>

#include <cerrno>

namespace chorale::guarding {

void signal_event(int event_fd) noexcept {
  if (event_fd < 0) return;
  const int saved = errno;
  const std::uint64_t one = 1;
  // A full counter (EAGAIN) is as good as a write: the sleeper's poll fires.
  [[maybe_unused]] const auto written = ::write(event_fd, &one, sizeof one);
  errno = saved;
}

void drain_event(int event_fd) noexcept {
  if (event_fd < 0) return;
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(event_fd, &count, sizeof count);
}

void ring(bell_line& bell, const member_line& sleeper, int bell_fd) noexcept {
  bell.bell.fetch_add(1);
  futex_wake(bell.bell);
  if (sleeper.sleeps_in.load() == static_cast<std::uint32_t>(sleep_kind::poll)) signal_event(bell_fd);
}

doorbell::doorbell() : event_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {
  if (!event_) throw failure{error::from_os(errno, "eventfd for the guard's doorbell")};
}

void doorbell::ring() noexcept {
  word_.fetch_add(1);
  futex_wake(word_);
  if (kind_.load() == static_cast<std::uint32_t>(sleep_kind::poll)) signal_event(event_.get());
}

}  // namespace chorale::guarding
