// Copies into memory that another CPU reads next and this one does not: past the caches, in whole lines.
//
// Lines that bounce between the caches of two CPUs cost an exchange each way, per line; where the CPUs share
// no cache that is four to eight times slower than going through memory, at every length from a kibibyte on
// (docs/benchmarks.md, "Host memory"). Any thread; cannot fail. `streaming_fence` must come between the copy
// and the store that tells the reader.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace chorale {

inline constexpr std::size_t line_bytes = 64;

/// One line; `to` is aligned to it.
inline void stream_line(std::byte* to, const void* from) noexcept {
#if defined(__x86_64__)
  const auto* source = static_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(target + i, _mm_loadu_si128(source + i));
#else
  std::memcpy(to, from, line_bytes);
#endif
}

/// `bytes` to `to`, which is aligned to lines and has room for whole ones: the last is filled with zeroes.
inline void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  for (; bytes >= line_bytes; bytes -= line_bytes, to += line_bytes, from += line_bytes)
    stream_line(to, from);
  if (bytes == 0) return;
  std::byte last[line_bytes] = {};
  std::memcpy(last, from, bytes);
  stream_line(to, last);
}

inline void streaming_fence() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace chorale
