// How f32 and the smaller floats meet on processors that convert f16 in hardware. Private to the
// host_kernels_*.cpp files of such instruction sets.
//
// `Convert` has the two instructions, for a register full of f16 codes: floats(halves) gives two registers
// and halves<rounding>(floats) takes two. The 8-bit formats go by way of f16, whose exponents are theirs once
// f8e4m3 is scaled: an 8-bit code is the upper part of an f16 code. On the way back f16 is rounded to odd,
// that is truncated with a lowest bit that says whether anything was lost: rounding this once more gives what
// rounding f32 would have given. A sum or product of two 8-bit floats is short enough for f16 rounded to
// nearest to do the same.
#pragma once

#include <chorale/kernels/host_lanes.hpp>
#include <chorale/kernels/host_operations.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace chorale::detail {

inline constexpr int round_to_nearest = 0;  // _MM_FROUND_TO_NEAREST_INT
inline constexpr int round_to_zero = 3;     // _MM_FROUND_TO_ZERO

/// 8-bit codes and f16 codes, in the elements of a vector.
template <class Format, class Halves>
struct eight_bits {
  static constexpr int shift = 10 - Format::mantissa_bits;
  static constexpr float scale = Format::smallest_exponent == -14 ? 1.0f : 256.0f;
  static constexpr std::int16_t nan_half = 0x7fff;
  static constexpr std::int16_t infinite_half = 0x7c00;

  /// f16 code, still to be scaled, of codes in the upper byte. What is in the lower byte does not matter.
  [[gnu::always_inline]] static Halves half_of_upper(Halves upper) noexcept {
    if constexpr (shift == 8) return upper & std::int16_t(-0x100);
    const Halves half = (upper >> 1) & std::int16_t(-0x4080);  // 0xbf80: sign, exponent, mantissa
    return half |
           ((half + std::int16_t{0x80}) & std::int16_t{0x4000});  // only the NaN carries, and becomes f16's
  }

  /// Code, in the lower byte, nearest to an f16 code that is scaled.
  [[gnu::always_inline]] static Halves nearest(Halves half) noexcept {
    constexpr auto ceiling = static_cast<std::int16_t>(Format::largest << shift);
    constexpr auto under_half = static_cast<std::int16_t>((1 << (shift - 1)) - 1);
    const Halves magnitude = half & nan_half;
    const Halves clamped = magnitude > ceiling ? Halves{} + ceiling : magnitude;
    const Halves odd = (clamped >> shift) & std::int16_t{1};
    const Halves rounded = (clamped + odd + under_half) >> shift;
    const Halves sign = (half >> 8) & std::int16_t{0x80};
    return magnitude > infinite_half ? Halves{} + std::int16_t{0x7f} : (rounded | sign);
  }
};

template <class Value>
[[gnu::always_inline]] inline Value scaled(Value v, float factor) noexcept {
  if (factor != 1.0f)
    for (auto& part : v.part) part *= factor;
  return v;
}

/// 8-bit floats as f32, neighbours in separate registers. For T ⊕ T and T · scalar only, see above. Sums need
/// not be scaled on the way in and back.
template <class Set, class T, class Op>
struct paired_eight_bit_lanes {
  using format = typename T::format;
  using halves = typename Set::halves;
  using meeting = eight_bits<format, halves>;
  static constexpr float scale = std::same_as<Op, add> ? 1.0f : meeting::scale;
  static constexpr std::size_t element_bytes = 1;
  static constexpr std::size_t width = 4 * Set::floats;
  using scalar = float;
  using vector = vec<float, Set::floats>;
  using value = registers<vector, 4>;

  [[gnu::always_inline]] static value read(const std::byte* from) noexcept {
    const halves pairs = load<halves>(from);
    const auto even = Set::floats_of(meeting::half_of_upper(pairs << 8));
    const auto odd = Set::floats_of(meeting::half_of_upper(pairs));
    return scaled(value{even.part[0], even.part[1], odd.part[0], odd.part[1]}, scale);
  }
  [[gnu::always_inline]] static void write(std::byte* to, const value& v) noexcept {
    const value down = scaled(v, 1.0f / scale);
    const halves even =
        meeting::nearest(Set::template halves_of<round_to_nearest>({down.part[0], down.part[1]}));
    const halves odd =
        meeting::nearest(Set::template halves_of<round_to_nearest>({down.part[2], down.part[3]}));
    store(to, even | (odd << 8));
  }
};

template <class Convert, std::size_t RegisterBytes>
struct half_precision_registers : vector_registers<RegisterBytes> {
  using plain = vector_registers<RegisterBytes>;
  using plain::floats;
  using two_vectors = registers<typename plain::float_vector, 2>;
  using halves = vec<std::int16_t, 2 * floats>;
  using codes = vec<std::int8_t, 2 * floats>;

  template <class Format>
  static constexpr std::size_t parts = std::same_as<Format, bf16_format> ? 1 : 2;

  [[gnu::always_inline]] static two_vectors floats_of(halves h) noexcept { return Convert::floats(h); }
  template <int Rounding>
  [[gnu::always_inline]] static halves halves_of(const two_vectors& v) noexcept {
    return Convert::template halves<Rounding>(v);
  }

  template <class Format>
  [[gnu::always_inline]] static registers<typename plain::float_vector, parts<Format>> widen(
      const std::byte* from) noexcept {
    if constexpr (std::same_as<Format, f16_format>) {
      return floats_of(load<halves>(from));
    } else if constexpr (std::same_as<Format, bf16_format>) {
      return plain::template widen<Format>(from);
    } else {
      using meeting = eight_bits<Format, halves>;
      const halves upper = __builtin_convertvector(load<codes>(from), halves) << 8;
      return scaled(floats_of(meeting::half_of_upper(upper)), meeting::scale);
    }
  }

  template <class Format>
  [[gnu::always_inline]] static void narrow(
      std::byte* to, const registers<typename plain::float_vector, parts<Format>>& v) noexcept {
    if constexpr (std::same_as<Format, f16_format>) {
      const halves half = halves_of<round_to_nearest>(v);
      store(to, (half & nan_bits<f16>) > infinity_of<f16>::bits ? halves{} + nan_bits<f16> : half);
    } else if constexpr (std::same_as<Format, bf16_format>) {
      plain::template narrow<Format>(to, v);
    } else {
      using meeting = eight_bits<Format, halves>;
      const halves odd = rounded_to_odd(scaled(v, 1.0f / meeting::scale));
      store(to, __builtin_convertvector(meeting::nearest(odd), codes));
    }
  }

  template <class Set, class T, class Op>
  struct combining : plain::template combining<Set, T, Op> {};
  template <class Set, class Op>
  struct combining<Set, f8e4m3, Op> {
    using lanes = paired_eight_bit_lanes<Set, f8e4m3, Op>;
  };
  template <class Set, class Op>
  struct combining<Set, f8e5m2, Op> {
    using lanes = paired_eight_bit_lanes<Set, f8e5m2, Op>;
  };

 private:
  [[gnu::always_inline]] static halves rounded_to_odd(const two_vectors& v) noexcept {
    const halves truncated = halves_of<round_to_zero>(v);
    const two_vectors back = floats_of(truncated);
    using some_codes = vec<std::int16_t, floats>;
    const auto inexact = joined(__builtin_convertvector(back.part[0] != v.part[0], some_codes),
                                __builtin_convertvector(back.part[1] != v.part[1], some_codes),
                                std::make_index_sequence<2 * floats>{});
    return truncated | (inexact & std::int16_t{1});
  }
};

}  // namespace chorale::detail
