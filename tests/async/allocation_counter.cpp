#include "allocation_counter.hpp"

#include <cstdlib>
#include <new>

namespace {
constinit thread_local std::uint64_t allocations = 0;

void* counted(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc{};
}
void* counted(std::size_t bytes, std::align_val_t boundary) {
  ++allocations;
  void* memory = nullptr;
  if (::posix_memalign(&memory, static_cast<std::size_t>(boundary), bytes) != 0) throw std::bad_alloc{};
  return memory;
}
}  // namespace

// Every form there is: replacing some of them makes linkers fetch the others from a sanitizer's runtime,
// which defines them all.
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

namespace chorale::testing {
std::uint64_t heap_allocations() noexcept { return allocations; }
}  // namespace chorale::testing
