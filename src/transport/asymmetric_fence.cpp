#include <chorale/transport/asymmetric_fence.hpp>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace chorale {
namespace {

bool membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

bool heavy_fences_work() noexcept {
  static const bool registered =
      membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) && membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  return registered;
}

void heavy_fence() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (heavy_fences_work()) membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

}  // namespace chorale
