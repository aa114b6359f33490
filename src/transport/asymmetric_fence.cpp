#include <chorale/transport/asymmetric_fence.hpp>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace chorale {
namespace {

bool membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

constinit std::atomic<bool> refused{false};

}  // namespace

bool heavy_fences_work() noexcept {
  static const bool registered =
      membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) && membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  return registered && !refused.load(std::memory_order_relaxed);
}

bool heavy_fence() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!heavy_fences_work()) return false;
  if (membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)) return true;
  refused.store(true, std::memory_order_relaxed);
  return false;
}

}  // namespace chorale
