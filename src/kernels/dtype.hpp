// Element types and reduction operations. The values travel in signatures: append, never renumber.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chorale {

enum class dtype : std::uint8_t {
  none = 0,
  i8 = 1,
  u8 = 2,
  i32 = 3,
  u32 = 4,
  i64 = 5,
  u64 = 6,
  f16 = 7,
  bf16 = 8,
  f32 = 9,
  f64 = 10,
  f8e4m3 = 11,
  f8e5m2 = 12,
};

enum class reduction : std::uint8_t {
  none = 0,
  sum = 1,
  prod = 2,
  min = 3,
  max = 4,
  avg = 5,
  premul_sum = 6,
  bit_and = 7,
  bit_or = 8,
  bit_xor = 9,
  user = 10,  ///< a function of the caller
};

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(dtype type) noexcept {
  switch (type) {
    case dtype::none:
      return 0;
    case dtype::i8:
    case dtype::u8:
    case dtype::f8e4m3:
    case dtype::f8e5m2:
      return 1;
    case dtype::f16:
    case dtype::bf16:
      return 2;
    case dtype::i32:
    case dtype::u32:
    case dtype::f32:
      return 4;
    case dtype::i64:
    case dtype::u64:
    case dtype::f64:
      return 8;
  }
  return 0;
}

[[nodiscard]] constexpr std::string_view name_of(dtype type) noexcept {
  constexpr std::string_view names[] = {"none", "i8",   "u8",  "i32", "u32",    "i64",   "u64",
                                        "f16",  "bf16", "f32", "f64", "f8e4m3", "f8e5m2"};
  const auto index = static_cast<std::size_t>(type);
  return index < sizeof names / sizeof *names ? names[index] : "unknown";
}

[[nodiscard]] constexpr std::string_view name_of(reduction op) noexcept {
  constexpr std::string_view names[] = {"none",       "sum",     "prod",   "min",     "max", "avg",
                                        "premul_sum", "bit_and", "bit_or", "bit_xor", "user"};
  const auto index = static_cast<std::size_t>(op);
  return index < sizeof names / sizeof *names ? names[index] : "unknown";
}

}  // namespace chorale
