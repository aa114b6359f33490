// Tells a fork child from its parent without a system call.
//
// A counter that fork() steps in the child, through pthread_atfork; whoever was made under another value is
// inherited. A bare clone() is not noticed, nor need it be: it shares memory or goes on to exec.
#pragma once

#include <cstdint>

namespace chorale::guarding {

/// How many forks this process is away from the one that first asked. Any thread.
[[nodiscard]] std::uint32_t fork_generation() noexcept;

/// Starts counting, and runs the three at every fork from now on; idempotent, the first call's functions
/// stay. Throws `failure` when memory is short.
void watch_forks(void (*before)(), void (*in_parent)(), void (*in_child)());

}  // namespace chorale::guarding
