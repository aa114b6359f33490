// One half of a pair of fences that costs nothing: who writes often only keeps the compiler in order, and who
// is about to sleep makes every CPU that runs a process of this kind pass a full fence (membarrier).
//
// For words of shared memory where one side stores A and loads B, the other stores B and loads A, and one of
// them must see the other's store. It holds between processes that have both registered; each tells the
// others whether it has, and who has not uses a full fence on its side. Any thread.
#pragma once

#include <atomic>

namespace chorale {

/// Registers this process, once. False where the kernel refuses: then writers need a full fence of their own.
[[nodiscard]] bool heavy_fences_work() noexcept;

/// The rare side's.
void heavy_fence() noexcept;

/// The frequent side's; `light` if both processes have registered.
inline void frequent_fence(bool light) noexcept {
  if (light)
    std::atomic_signal_fence(std::memory_order_seq_cst);
  else
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace chorale
