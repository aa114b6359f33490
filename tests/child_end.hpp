// Waiting for a child process with a limit.
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>

namespace chorale::testing {

/// Whether that child of this process ends within the limit; it is left to be reaped. Where no descriptor of
/// a process can be had, which some tests arrange, it looks every millisecond.
inline bool ends_within(pid_t child, std::chrono::nanoseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  if (process >= 0) {
    pollfd p{process, POLLIN, 0};
    const bool over =
        ::poll(&p, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(limit).count())) == 1;
    ::close(process);
    return over;
  }
  for (;;) {
    siginfo_t ended{};
    if (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        ended.si_pid != 0)
      return true;
    if (std::chrono::steady_clock::now() >= until) return false;
    const timespec step{0, 1'000'000};
    ::nanosleep(&step, nullptr);
  }
}

}  // namespace chorale::testing
