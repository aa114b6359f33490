// The 16- and 8-bit floats as C++ types: `f16`, `bf16`, `f8e4m3`, `f8e5m2`.
//
// They store and convert, they do not calculate: say `float(x)` and `bf16{y}`. Conversions are constexpr,
// explicit and round to nearest, ties to even, subnormals included. What is too large becomes an infinity in
// f16 and bf16, and the largest finite value in the 8-bit formats, which infinities become as well (as
// cvt.rn.satfinite does on GPUs). f8e4m3 is the form without infinities. A NaN becomes the type's one NaN
// `not_a_number`, positive. Widening is exact.
#pragma once

#include <chorale/kernels/dtype.hpp>  // first: g++ takes its enumerators for shadows of the types below

#include <cstdint>
#include <type_traits>

namespace chorale {

/// How a format differs from f32. Codes are sign and magnitude, and magnitudes are ordered like integers.
struct f16_format {
  using code_type = std::uint16_t;
  static constexpr int mantissa_bits = 10;
  static constexpr int smallest_exponent = -14;        ///< of normal numbers
  static constexpr std::int32_t ceiling = 0x47800000;  ///< f32 bits (65536) which larger magnitudes become
  static constexpr std::int32_t infinity = 0x7c00;     ///< code above which NaNs begin
  static constexpr std::int32_t largest = 0x7bff;      ///< code of the largest finite value
};

struct bf16_format {
  using code_type = std::uint16_t;
  static constexpr int mantissa_bits = 7;
  static constexpr int smallest_exponent = -126;
  static constexpr std::int32_t infinity = 0x7f80;
  static constexpr std::int32_t largest = 0x7f7f;
};

struct f8e4m3_format {
  using code_type = std::uint8_t;
  static constexpr int mantissa_bits = 3;
  static constexpr int smallest_exponent = -6;
  static constexpr std::int32_t ceiling = 0x43e00000;  // 448
  static constexpr std::int32_t infinity = 0x7e;       // there is none: the largest value stands in its place
  static constexpr std::int32_t largest = 0x7e;
};

struct f8e5m2_format {
  using code_type = std::uint8_t;
  static constexpr int mantissa_bits = 2;
  static constexpr int smallest_exponent = -14;
  static constexpr std::int32_t ceiling = 0x47600000;  // 57344
  static constexpr std::int32_t infinity = 0x7c;
  static constexpr std::int32_t largest = 0x7b;
};

namespace detail {

// Written once for numbers and for vectors of them, which the reductions hand in: nothing here branches.
// `Bits` are int32, never overflowing. Always inlined: a copy compiled for one instruction set must not serve
// others.

template <class Format>
inline constexpr int code_bits = 8 * sizeof(typename Format::code_type);
template <class Format>
inline constexpr std::int32_t sign_code = 1 << (code_bits<Format> - 1);
template <class Format>
inline constexpr std::int32_t nan_code = sign_code<Format> - 1;
template <class Format>
inline constexpr int dropped_bits = 23 - Format::mantissa_bits;

/// Code of the nearest value, in the low bits.
template <class Format, class Bits, class Float>
[[nodiscard, gnu::always_inline]] constexpr Bits encode(Float value) noexcept {
  constexpr int dropped = dropped_bits<Format>;
  const Bits bits = __builtin_bit_cast(Bits, value);
  const Bits magnitude = bits & 0x7fffffff;
  if constexpr (Format::smallest_exponent == -126) {
    // f32's own exponents: half a unit, less for an even neighbour below, carries where it must.
    const Bits ordinary = magnitude > 0x7f800000 ? Bits{} + 0x7fff0000 : bits;
    const Bits odd = (ordinary >> dropped) & 1;
    return ((ordinary + odd + ((1 << (dropped - 1)) - 1)) >> dropped) & 0xffff;
  } else {
    const Bits sign = (bits >> (32 - code_bits<Format>)) & sign_code<Format>;
    constexpr std::int32_t smallest = (Format::smallest_exponent + 127) << 23;
    const Bits clamped = magnitude > Format::ceiling ? Bits{} + Format::ceiling : magnitude;
    // Adding a power of two whose unit in the last place is the format's unit at this exponent makes the FPU
    // round where the format does. What the sum's mantissa then holds counts units.
    const Bits exponent = (clamped < smallest ? Bits{} + smallest : clamped) & 0x7f800000;
    const Bits power = exponent + (dropped << 23);
    const Float sum = __builtin_bit_cast(Float, clamped) + __builtin_bit_cast(Float, power);
    const Bits units = __builtin_bit_cast(Bits, sum) - power;
    const Bits code = units + ((exponent - smallest) >> dropped);
    return magnitude > 0x7f800000 ? Bits{} + nan_code<Format> : (code | sign);
  }
}

/// Value of a code that was extended with zeros.
template <class Format, class Float, class Bits>
[[nodiscard, gnu::always_inline]] constexpr Float decode(Bits code) noexcept {
  if constexpr (Format::smallest_exponent == -126) return __builtin_bit_cast(Float, Bits(code << 16));
  const Bits sign = (code & sign_code<Format>) << (32 - code_bits<Format>);
  const Bits magnitude = code & nan_code<Format>;
  const Bits shifted = magnitude << dropped_bits<Format>;
  constexpr std::int32_t smallest = (Format::smallest_exponent + 127) << 23;
  const Bits normal = shifted + (smallest - (1 << 23));
  // A subnormal read as if it were normal is too large by the smallest normal number.
  const Float below =
      __builtin_bit_cast(Float, Bits(shifted + smallest)) - __builtin_bit_cast(float, smallest);
  const Bits finite = magnitude < (1 << Format::mantissa_bits) ? __builtin_bit_cast(Bits, below) : normal;
  const Bits special = Format::infinity > Format::largest ? Bits(shifted | 0x7f800000) : Bits{} + 0x7fffffff;
  const Bits value = magnitude > Format::largest ? special : finite;
  return __builtin_bit_cast(Float, Bits(value | sign));
}

}  // namespace detail

template <class Format>
struct small_float {
  using format = Format;
  using code_type = typename Format::code_type;

  small_float() = default;
  [[gnu::always_inline]] explicit constexpr small_float(float value) noexcept
      : bits{static_cast<code_type>(detail::encode<Format, std::int32_t>(value))} {}
  [[nodiscard, gnu::always_inline]] explicit constexpr operator float() const noexcept {
    return detail::decode<Format, float>(std::int32_t{bits});
  }
  [[nodiscard, gnu::always_inline]] static constexpr small_float from_bits(code_type bits) noexcept {
    small_float made;
    made.bits = bits;
    return made;
  }

  code_type bits;
};

using f16 = small_float<f16_format>;
using bf16 = small_float<bf16_format>;
using f8e4m3 = small_float<f8e4m3_format>;
using f8e5m2 = small_float<f8e5m2_format>;

/// The NaN that every conversion and every operation makes. Of f32 and f64 it is the one with all mantissa
/// bits set.
template <class Format>
inline constexpr small_float<Format> not_a_number =
    small_float<Format>::from_bits(static_cast<typename Format::code_type>(detail::nan_code<Format>));

static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2 && sizeof(f8e4m3) == 1 && sizeof(f8e5m2) == 1);
static_assert(std::is_trivially_copyable_v<f16> && std::is_trivially_default_constructible_v<f8e4m3>);

}  // namespace chorale
