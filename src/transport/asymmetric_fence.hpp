// One half of a pair of fences that costs nothing: who writes often only keeps the compiler in order, and who
// is about to sleep makes every CPU that runs a process of this kind pass a full fence (membarrier).
//
// For words of shared memory where one side stores A and loads B, the other stores B and loads A, and one of
// them must see the other's store. It holds between processes if the frequent side's has registered, which a
// fork child inherits and exec undoes, and the rare side says in shared memory that it fences for both; who
// cannot rely on that uses a full fence. A filter may begin to refuse the call at any time: then the rare
// side takes its word back and stays awake for a while. Any thread.
#pragma once

#include <atomic>

namespace chorale {

/// Registers this process, once. False where the kernel refuses, or has refused since.
[[nodiscard]] bool heavy_fences_work() noexcept;

/// The rare side's. False if the kernel refused: then this thread alone has fenced.
[[nodiscard]] bool heavy_fence() noexcept;

/// The frequent side's; `light` if this process has registered and the other side says that it fences for
/// both.
inline void frequent_fence(bool light) noexcept {
  if (light)
    std::atomic_signal_fence(std::memory_order_seq_cst);
  else
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace chorale
