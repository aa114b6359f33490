// How f32 and the smaller floats meet on processors that convert f16 in hardware. Private to the
// host_kernels_*.cpp files of such instruction sets.
//
// `Convert` has the two instructions: floats(halves) and halves<immediate>(floats), 16 at a time. The 8-bit
// formats go by way of f16, whose exponents are theirs once f8e4m3 is scaled: an 8-bit code is the upper part
// of an f16 code. On the way back f16 is rounded to odd, that is truncated with a lowest bit that says
// whether anything was lost: rounding this once more gives what rounding f32 would have given.
#pragma once

#include <chorale/kernels/host_lanes.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace chorale::detail {

inline constexpr int round_to_nearest = 0x0;  // _MM_FROUND_TO_NEAREST_INT
inline constexpr int round_to_zero = 0x3;     // _MM_FROUND_TO_ZERO

template <class Convert, std::size_t RegisterBytes>
struct half_precision_registers : vector_registers<RegisterBytes, 16> {
  using plain = vector_registers<RegisterBytes, 16>;
  using typename plain::float_vector;
  using halves = vec<std::int16_t, 16>;
  using codes = vec<std::int8_t, 16>;

  template <class Format>
  static constexpr int shift = 10 - Format::mantissa_bits;  ///< from an 8-bit code to f16's
  template <class Format>
  static constexpr float scale = Format::smallest_exponent == -14 ? 1.0f : 256.0f;

  template <class Format>
  [[gnu::always_inline]] static float_vector widen(const std::byte* from) noexcept {
    if constexpr (std::same_as<Format, f16_format>) {
      return Convert::floats(load<halves>(from));
    } else if constexpr (sizeof(typename Format::code_type) == 1) {
      const halves extended = __builtin_convertvector(load<codes>(from), halves);
      halves half = extended << shift<Format>;
      if constexpr (scale<Format> != 1.0f) {
        half &= std::int16_t(0x3f80 | -0x8000);
        half |= (extended & std::int16_t{0x7f}) == std::int16_t{0x7f} ? halves{} + std::int16_t{0x7fff}
                                                                      : halves{};
        return Convert::floats(half) * scale<Format>;
      }
      return Convert::floats(half);
    } else {
      return plain::template widen<Format>(from);
    }
  }

  template <class Format>
  [[gnu::always_inline]] static void narrow(std::byte* to, float_vector v) noexcept {
    if constexpr (std::same_as<Format, f16_format>) {
      const halves half = Convert::template halves<round_to_nearest>(v);
      store(to, (half & nan_half) > infinite_half ? halves{} + nan_half : half);
    } else if constexpr (sizeof(typename Format::code_type) == 1) {
      store(to, __builtin_convertvector(upper_part<Format>(to_odd(v * (1.0f / scale<Format>))), codes));
    } else {
      plain::template narrow<Format>(to, v);
    }
  }

 private:
  static constexpr std::int16_t nan_half = 0x7fff;
  static constexpr std::int16_t infinite_half = 0x7c00;

  [[gnu::always_inline]] static halves to_odd(float_vector v) noexcept {
    const halves truncated = Convert::template halves<round_to_zero>(v);
    const auto inexact = Convert::floats(truncated) != v;
    return truncated | (__builtin_convertvector(inexact, halves) & std::int16_t{1});
  }

  template <class Format>
  [[gnu::always_inline]] static halves upper_part(halves half) noexcept {
    constexpr auto ceiling = static_cast<std::int16_t>(Format::largest << shift<Format>);
    constexpr auto under_half = static_cast<std::int16_t>((1 << (shift<Format> - 1)) - 1);
    const halves magnitude = half & nan_half;
    const halves clamped = magnitude > ceiling ? halves{} + ceiling : magnitude;
    const halves odd = (clamped >> shift<Format>)&std::int16_t{1};
    const halves rounded = (clamped + odd + under_half) >> shift<Format>;
    const halves sign = (half >> 8) & std::int16_t{0x80};
    return magnitude > infinite_half ? halves{} + std::int16_t{0x7f} : (rounded | sign);
  }
};

}  // namespace chorale::detail
