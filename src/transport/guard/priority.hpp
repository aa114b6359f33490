// Lets guard threads answer promptly on a machine full of computing threads.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace chorale::guarding {

/// Raises the calling thread's priority where the system allows it (root, CAP_SYS_NICE, RLIMIT_NICE). Where
/// it does not, a sleeper that wakes for microseconds still comes first under fair scheduling.
inline void prefer_this_thread() noexcept {
  const auto self = static_cast<id_t>(::syscall(SYS_gettid));
  static_cast<void>(::setpriority(PRIO_PROCESS, self, -10));
}

}  // namespace chorale::guarding
