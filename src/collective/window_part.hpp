// One rank's part of a window, as memory: its counters, then its bytes.
//
// A part that ranks share is one segment: a line per counter, so that signals do not disturb each other, and
// behind them the bytes, aligned to 64. Counters are written by atomic additions only. A view; owns nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace chorale {

struct alignas(64) window_counter {
  std::atomic<std::uint64_t> value{0};
};

struct window_part {
  std::uint64_t bytes = 0;
  std::uint32_t signals = 0;
  window_counter* counters = nullptr;  ///< null where this rank can not reach the memory itself
  std::byte* memory = nullptr;

  [[nodiscard]] bool reachable() const noexcept { return counters != nullptr; }

  /// What a segment for such a part holds.
  [[nodiscard]] static constexpr std::size_t segment_bytes(std::uint64_t bytes,
                                                           std::uint32_t signals) noexcept {
    return signals * sizeof(window_counter) + static_cast<std::size_t>(bytes);
  }
  /// The part in zeroed memory of that size, aligned to 64.
  [[nodiscard]] static window_part in(std::byte* segment, std::uint64_t bytes,
                                      std::uint32_t signals) noexcept {
    return {bytes, signals, reinterpret_cast<window_counter*>(segment),
            segment + signals * sizeof(window_counter)};
  }
};

}  // namespace chorale
