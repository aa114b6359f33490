#include <chorale/async/error.hpp>
#include <chorale/transport/guard/fork_mark.hpp>

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace chorale::guarding {
namespace {

// Process-wide, because fork() is.
std::atomic<std::uint32_t> generation{0};

}  // namespace

std::uint32_t fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

void watch_forks(void (*before)(), void (*in_parent)(), void (*in_child)()) {
  static std::once_flag once;
  std::call_once(once, [&] {
    int failed = ::pthread_atfork(before, in_parent, in_child);
    if (failed == 0) failed = ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
    if (failed != 0) throw failure{error::from_os(failed, "pthread_atfork")};
  });
}

}  // namespace chorale::guarding
