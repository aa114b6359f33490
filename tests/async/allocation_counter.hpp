// Counts what the calling thread takes from the global allocator; this test program replaces operator new.
#pragma once

#include <cstdint>

namespace chorale::testing {
[[nodiscard]] std::uint64_t heap_allocations() noexcept;
}  // namespace chorale::testing
