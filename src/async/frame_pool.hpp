// Memory for coroutine frames, recycled per thread so that steady state allocates nothing.
//
// Sizes are rounded to cache lines and kept in free lists of the thread that frees them; freeing on another
// thread than the allocating one is legal. Frames above `largest_pooled_frame` go to the global allocator. A
// thread's lists are returned when it ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>

namespace chorale {

inline constexpr std::size_t largest_pooled_frame = 4096;

namespace detail {

inline constexpr std::size_t frame_granule = 64;

struct free_frame_node {
  free_frame_node* next;
};

/// One thread's free lists, by size in granules.
// Trivially destructible on purpose: frames may still be freed by other thread-locals' destructors after the
// lists have been given back.
struct frame_lists {
  std::array<free_frame_node*, largest_pooled_frame / frame_granule> heads;
  std::uint64_t heap_allocations;
  bool ended;
};
extern constinit thread_local frame_lists local_frames;

[[nodiscard]] void* allocate_frame_from_heap(std::size_t size);
[[nodiscard]] constexpr std::size_t frame_class(std::size_t size) noexcept {
  return (size + frame_granule - 1) / frame_granule - 1;
}

}  // namespace detail

[[nodiscard]] inline void* allocate_frame(std::size_t size) {
  if (size > largest_pooled_frame) return detail::allocate_frame_from_heap(size);
  const std::size_t index = detail::frame_class(size);
  auto& head = detail::local_frames.heads[index];
  if (auto* frame = head) {
    head = frame->next;
    return frame;
  }
  return detail::allocate_frame_from_heap((index + 1) * detail::frame_granule);
}

inline void free_frame(void* frame, std::size_t size) noexcept {
  auto& mine = detail::local_frames;
  if (size > largest_pooled_frame || mine.ended) return ::operator delete(frame);
  auto& head = mine.heads[detail::frame_class(size)];
  head = ::new (frame) detail::free_frame_node{head};
}

/// Lets a suspended frame be for ever. It stays reachable, so that leak checkers see the intention.
void abandon_frame(void* frame);

/// How often the calling thread went to the global allocator for a frame. Tests assert that it stands still.
[[nodiscard]] inline std::uint64_t frame_heap_allocations() noexcept {
  return detail::local_frames.heap_allocations;
}

/// Base of promises: gives their frames the pool.
struct pooled_frame {
  static void* operator new(std::size_t size) { return allocate_frame(size); }
  static void operator delete(void* frame, std::size_t size) noexcept { free_frame(frame, size); }
};

}  // namespace chorale
