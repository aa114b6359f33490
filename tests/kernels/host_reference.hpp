// What the reductions of host memory must give, element by element, by another way: values as f64, rounding
// by counting units. Elements are handled as codes, their bits in the low end of a uint64.
#pragma once

#include <chorale/kernels/dtype.hpp>
#include <chorale/kernels/host_instruction_set.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace reference {

using chorale::dtype;
using chorale::instruction_set;
using chorale::reduction;
using code = std::uint64_t;

inline constexpr dtype types[] = {dtype::i8,  dtype::u8,  dtype::i32,    dtype::u32,
                                  dtype::i64, dtype::u64, dtype::f16,    dtype::bf16,
                                  dtype::f32, dtype::f64, dtype::f8e4m3, dtype::f8e5m2};
inline constexpr dtype small_floats[] = {dtype::f16, dtype::bf16, dtype::f8e4m3, dtype::f8e5m2};
inline constexpr dtype floats[] = {dtype::f16,    dtype::bf16, dtype::f8e4m3,
                                   dtype::f8e5m2, dtype::f32,  dtype::f64};

inline bool is_signed_integer(dtype t) { return t == dtype::i8 || t == dtype::i32 || t == dtype::i64; }
inline bool is_integer(dtype t) {
  return is_signed_integer(t) || t == dtype::u8 || t == dtype::u32 || t == dtype::u64;
}
inline int width(dtype t) { return static_cast<int>(8 * chorale::size_of(t)); }
inline code all_ones(dtype t) { return ~code{0} >> (64 - width(t)); }

/// The instruction sets that this machine can be asked for.
inline std::vector<instruction_set> sets() {
  std::vector<instruction_set> found;
  for (auto set : {instruction_set::portable, instruction_set::avx2, instruction_set::avx512})
    if (set <= chorale::best_instruction_set()) found.push_back(set);
  return found;
}

struct shape {
  int exponent_bits;
  int mantissa_bits;
  bool infinities;
};
inline shape shape_of(dtype t) {
  switch (t) {
    case dtype::f16:
      return {5, 10, true};
    case dtype::bf16:
      return {8, 7, true};
    case dtype::f8e4m3:
      return {4, 3, false};
    case dtype::f8e5m2:
      return {5, 2, true};
    case dtype::f32:
      return {8, 23, true};
    default:
      return {11, 52, true};
  }
}

/// The one NaN that operations make.
inline code nan_code(dtype t) { return all_ones(t) >> 1; }

inline bool is_nan(dtype t, code c) {
  const shape s = shape_of(t);
  const code magnitude = c & nan_code(t);
  const code top = (code{1} << s.exponent_bits) - 1;
  return s.infinities ? magnitude > top << s.mantissa_bits : magnitude == nan_code(t);
}

inline double value(dtype t, code c) {
  const shape s = shape_of(t);
  if (is_nan(t, c)) return std::numeric_limits<double>::quiet_NaN();
  const int bias = (1 << (s.exponent_bits - 1)) - 1;
  const auto exponent = static_cast<int>((c >> s.mantissa_bits) & ((1u << s.exponent_bits) - 1));
  const auto mantissa = static_cast<double>(c & ((code{1} << s.mantissa_bits) - 1));
  const double one = std::ldexp(1.0, s.mantissa_bits);
  double magnitude = 0;
  if (s.infinities && exponent == (1 << s.exponent_bits) - 1)
    magnitude = std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    magnitude = std::ldexp(mantissa, 1 - bias - s.mantissa_bits);
  else
    magnitude = std::ldexp(one + mantissa, exponent - bias - s.mantissa_bits);
  return (c >> (width(t) - 1)) & 1 ? -magnitude : magnitude;
}

/// Code of the value nearest to `x`, ties to even, for 16 and 8 bits.
inline code nearest(dtype t, double x) {
  const shape s = shape_of(t);
  if (std::isnan(x)) return nan_code(t);
  const code sign = std::signbit(x) ? code{1} << (width(t) - 1) : 0;
  const int bias = (1 << (s.exponent_bits - 1)) - 1;
  const code infinity = ((code{1} << s.exponent_bits) - 1) << s.mantissa_bits;
  const code largest = s.infinities ? infinity - 1 : nan_code(t) - 1;
  const code beyond = width(t) == 8 ? largest : infinity;
  x = std::fabs(x);
  if (std::isinf(x)) return sign | beyond;
  const int exponent = x == 0 ? 1 - bias : std::max(std::ilogb(x), 1 - bias);
  const double units = std::ldexp(x, s.mantissa_bits - exponent);
  double whole = std::floor(units);
  const double rest = units - whole;
  if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) == 1.0)) whole += 1;
  const code magnitude =
      (static_cast<code>(exponent + bias - 1) << s.mantissa_bits) + static_cast<code>(whole);
  return sign | (magnitude > largest ? beyond : magnitude);
}

inline float as_float(code c) { return std::bit_cast<float>(static_cast<std::uint32_t>(c)); }
inline code float_code(float x) {
  return std::isnan(x) ? nan_code(dtype::f32) : std::bit_cast<std::uint32_t>(x);
}
inline code double_code(double x) {
  return std::isnan(x) ? nan_code(dtype::f64) : std::bit_cast<std::uint64_t>(x);
}

/// f32 that results when f64 has calculated: for +, · and / of two f32 this rounds like f32 itself.
inline code rounded(dtype t, double x) {
  if (t == dtype::f64) return double_code(x);
  const auto in_f32 = static_cast<float>(x);
  return t == dtype::f32 ? float_code(in_f32) : nearest(t, in_f32);
}

inline code least(dtype t, code a, code b, bool want_greater) {
  if (is_integer(t)) {
    const int up = 64 - width(t);
    const bool less = is_signed_integer(t)
                          ? static_cast<std::int64_t>(a << up) < static_cast<std::int64_t>(b << up)
                          : a < b;
    return less != want_greater ? a : b;
  }
  if (is_nan(t, a) || is_nan(t, b)) return nan_code(t);
  const double x = value(t, a), y = value(t, b);
  if (x == y) return (std::signbit(x) != want_greater) ? a : b;
  return (x < y) != want_greater ? a : b;
}

inline code combined(dtype t, reduction op, code a, code b) {
  switch (op) {
    case reduction::min:
      return least(t, a, b, false);
    case reduction::max:
      return least(t, a, b, true);
    case reduction::bit_and:
      return a & b;
    case reduction::bit_or:
      return a | b;
    case reduction::bit_xor:
      return a ^ b;
    case reduction::prod:
      return is_integer(t) ? (a * b) & all_ones(t) : rounded(t, value(t, a) * value(t, b));
    default:
      return is_integer(t) ? (a + b) & all_ones(t) : rounded(t, value(t, a) + value(t, b));
  }
}

inline std::vector<std::byte> bytes(dtype t, const std::vector<code>& codes) {
  const std::size_t each = chorale::size_of(t);
  std::vector<std::byte> packed(codes.size() * each);
  for (std::size_t i = 0; i < codes.size(); ++i) std::memcpy(packed.data() + i * each, &codes[i], each);
  return packed;
}

inline code element(dtype t, const std::byte* at, std::size_t index) {
  code c = 0;
  std::memcpy(&c, at + index * chorale::size_of(t), chorale::size_of(t));
  return c;
}

/// Empty if `got` holds `wanted`, else the first difference.
inline std::string difference(dtype t, const std::byte* got, const std::vector<code>& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const code g = element(t, got, i);
    if (g == wanted[i]) continue;
    char text[120];
    std::snprintf(text, sizeof text, "element %zu is %#llx, not %#llx", i, static_cast<unsigned long long>(g),
                  static_cast<unsigned long long>(wanted[i]));
    return text;
  }
  return {};
}

}  // namespace reference
