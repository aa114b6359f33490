#include <chorale/transport/guard/system_calls.hpp>

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace chorale::guarding {
namespace {

// The same number on every architecture; Debian 12's libc does not name it everywhere.
constexpr long futex_waitv_number = 449;

bool shows(int fd, short events) noexcept {
  if (fd < 0) return false;
  pollfd p{fd, events, 0};
  return ::poll(&p, 1, 0) == 1 && p.revents != 0;
}

}  // namespace

void futex_wake(futex_word& word) noexcept {
  const int saved = errno;
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  errno = saved;
}

void futex_wait(const futex_word& word, std::uint32_t expected) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, nullptr, nullptr, 0);
}

void futex_wait_any(std::span<const waited_word> words, std::optional<clock::time_point> deadline) noexcept {
  timespec until{};
  if (deadline) {
    const auto since_boot = deadline->time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since_boot);
    until.tv_sec = static_cast<time_t>(seconds.count());
    until.tv_nsec = static_cast<long>(std::chrono::nanoseconds{since_boot - seconds}.count());
  }
  ::syscall(futex_waitv_number, words.data(), static_cast<unsigned>(words.size()), 0U,
            deadline ? &until : nullptr, CLOCK_MONOTONIC);
}

bool can_wait_for_many_futexes() noexcept {
  // No words at all is EINVAL where the call exists.
  return ::syscall(futex_waitv_number, nullptr, 0U, 0U, nullptr, CLOCK_MONOTONIC) == -1 && errno == EINVAL;
}

int pidfd_open(pid_t pid) noexcept { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)); }

bool process_ended(int pidfd) noexcept { return shows(pidfd, POLLIN); }
bool other_end_closed(int socket) noexcept { return shows(socket, POLLRDHUP); }

}  // namespace chorale::guarding
