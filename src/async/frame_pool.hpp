// Memory for coroutine frames, recycled per thread so that steady state allocates nothing.
//
// Sizes are rounded to cache lines and kept in free lists of the thread that frees them; freeing on another
// thread than the allocating one is legal. Frames above `largest_pooled_frame` go to the global allocator. A
// thread's lists are returned when it ends.
#pragma once

#include <cstddef>
#include <cstdint>

namespace chorale {

inline constexpr std::size_t largest_pooled_frame = 4096;

[[nodiscard]] void* allocate_frame(std::size_t size);
void free_frame(void* frame, std::size_t size) noexcept;

/// Lets a suspended frame be for ever. It stays reachable, so that leak checkers see the intention.
void abandon_frame(void* frame);

/// How often the calling thread went to the global allocator for a frame. Tests assert that it stands still.
[[nodiscard]] std::uint64_t frame_heap_allocations() noexcept;

/// Base of promises: gives their frames the pool.
struct pooled_frame {
  static void* operator new(std::size_t size) { return allocate_frame(size); }
  static void operator delete(void* frame, std::size_t size) noexcept { free_frame(frame, size); }
};

}  // namespace chorale
