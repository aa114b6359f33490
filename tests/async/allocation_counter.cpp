#include "allocation_counter.hpp"

#include <cstdlib>
#include <new>

namespace {
constinit thread_local std::uint64_t allocations = 0;

[[maybe_unused]] void* counted(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc{};
}
[[maybe_unused]] void* counted(std::size_t bytes, std::align_val_t boundary) {
  ++allocations;
  void* memory = nullptr;
  if (::posix_memalign(&memory, static_cast<std::size_t>(boundary), bytes) != 0) throw std::bad_alloc{};
  return memory;
}
}  // namespace

// The thread sanitizer's runtime insists on its own operators; there the counter stands still.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CHORALE_TEST_KEEP_OPERATORS
#endif
#endif
#ifndef CHORALE_TEST_KEEP_OPERATORS
using size = std::size_t;
using alignment = std::align_val_t;
using quiet = const std::nothrow_t&;
void* operator new(size n) { return counted(n); }
void* operator new[](size n) { return counted(n); }
void* operator new(size n, alignment a) { return counted(n, a); }
void* operator new[](size n, alignment a) { return counted(n, a); }
void* operator new(size n, quiet) noexcept { return counted(n); }
void* operator new[](size n, quiet) noexcept { return counted(n); }
void* operator new(size n, alignment a, quiet) noexcept { return counted(n, a); }
void* operator new[](size n, alignment a, quiet) noexcept { return counted(n, a); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size) noexcept { std::free(memory); }
void operator delete[](void* memory, size) noexcept { std::free(memory); }
void operator delete(void* memory, alignment) noexcept { std::free(memory); }
void operator delete[](void* memory, alignment) noexcept { std::free(memory); }
void operator delete(void* memory, size, alignment) noexcept { std::free(memory); }
void operator delete[](void* memory, size, alignment) noexcept { std::free(memory); }
void operator delete(void* memory, quiet) noexcept { std::free(memory); }
void operator delete[](void* memory, quiet) noexcept { std::free(memory); }
void operator delete(void* memory, alignment, quiet) noexcept { std::free(memory); }
void operator delete[](void* memory, alignment, quiet) noexcept { std::free(memory); }
#endif

namespace chorale::testing {
std::uint64_t heap_allocations() noexcept { return allocations; }
}  // namespace chorale::testing
