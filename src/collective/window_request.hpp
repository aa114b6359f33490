// What the application asks of a window, as plain data. Light, so that public headers can hold it.
#pragma once

#include <chorale/async/clock.hpp>
#include <chorale/async/error.hpp>
#include <chorale/kernels/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace chorale {

enum class window_action : std::uint8_t { put, accumulate, get, signal, wait };

struct window_request {
  window_action action = window_action::put;
  dtype type = dtype::none;  ///< of the elements in the caller's memory
  reduction op = reduction::none;
  rank_t peer = no_rank;            ///< the target; unused in wait
  std::uint64_t offset = 0;         ///< bytes into the target's part
  const std::byte* from = nullptr;  ///< put, accumulate
  std::byte* into = nullptr;        ///< get
  std::uint64_t bytes = 0;          ///< of the caller's memory
  std::uint32_t slot = 0;           ///< signal, wait
  std::uint64_t amount = 0;         ///< signal: what is added; wait: what the counter must reach
  time_point expires = never;
};

/// "put of 4096 bytes at 128 of rank 2".
[[nodiscard]] std::string describe(const window_request& what);

}  // namespace chorale
