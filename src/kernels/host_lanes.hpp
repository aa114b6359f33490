// A lane set reads elements into a vector register and writes results back, a register's worth at a time.
// Private to the host_kernels_*.cpp files, each of which is compiled for one instruction set.
//
// `Set` is that file's own description of its registers, of internal linkage: what is instantiated with it
// stays in the file. Whatever is not is always inlined, else the linker could keep one file's copy for all.
#pragma once

#include <chorale/kernels/small_float.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace chorale::detail {

template <class T, std::size_t Width>
struct vector_of {
  using type [[gnu::vector_size(sizeof(T) * Width)]] = T;
};
template <class T, std::size_t Width>
using vec = typename vector_of<T, Width>::type;

template <std::size_t Bytes>
struct integer_of;
template <>
struct integer_of<1> {
  using type = std::int8_t;
};
template <>
struct integer_of<2> {
  using type = std::int16_t;
};
template <>
struct integer_of<4> {
  using type = std::int32_t;
};
template <>
struct integer_of<8> {
  using type = std::int64_t;
};

/// Signed integer as large as T.
template <class T>
using bits_of = typename integer_of<sizeof(T)>::type;

template <class Vector>
[[nodiscard, gnu::always_inline]] inline Vector load(const std::byte* from) noexcept {
  Vector loaded;
  __builtin_memcpy(&loaded, from, sizeof loaded);
  return loaded;
}
template <class Vector>
[[gnu::always_inline]] inline void store(std::byte* to, const Vector& stored) noexcept {
  __builtin_memcpy(to, &stored, sizeof stored);
}

/// Magnitude above which the bits of a T are a NaN.
template <class T>
struct infinity_of {
  static constexpr bits_of<T> bits = static_cast<bits_of<T>>(T::format::infinity);
};
template <>
struct infinity_of<float> {
  static constexpr std::int32_t bits = 0x7f800000;
};
template <>
struct infinity_of<double> {
  static constexpr std::int64_t bits = 0x7ff0000000000000;
};
template <class T>
inline constexpr bits_of<T> nan_bits = static_cast<bits_of<T>>(~(std::uint64_t{1} << (8 * sizeof(T) - 1)));

/// Integers as they are: what they compare like.
template <class Set, class T>
struct plain_lanes {
  static constexpr std::size_t element_bytes = sizeof(T);
  static constexpr std::size_t width = Set::register_bytes / sizeof(T);
  using scalar = T;
  using value = vec<T, width>;
  [[gnu::always_inline]] static value read(const std::byte* from) noexcept { return load<value>(from); }
  [[gnu::always_inline]] static void write(std::byte* to, value v) noexcept { store(to, v); }
};

/// f32 and f64, whose NaNs become the type's one NaN.
template <class Set, class T>
struct float_lanes : plain_lanes<Set, T> {
  using typename plain_lanes<Set, T>::value;
  [[gnu::always_inline]] static void write(std::byte* to, value v) noexcept {
    using bits = vec<bits_of<T>, plain_lanes<Set, T>::width>;
    store(to, v == v ? __builtin_bit_cast(bits, v) : bits{} + nan_bits<T>);
  }
};

/// f32 as it is, as many at a time as widened_lanes hold.
template <class Set>
struct accumulator_lanes {
  static constexpr std::size_t element_bytes = sizeof(float);
  static constexpr std::size_t width = Set::floats;
  using scalar = float;
  using value = vec<float, width>;
  [[gnu::always_inline]] static value read(const std::byte* from) noexcept { return load<value>(from); }
  [[gnu::always_inline]] static void write(std::byte* to, value v) noexcept { store(to, v); }
};

/// 16- and 8-bit floats as f32.
template <class Set, class T>
struct widened_lanes {
  static constexpr std::size_t element_bytes = sizeof(T);
  static constexpr std::size_t width = Set::floats;
  using scalar = float;
  using value = vec<float, width>;
  [[gnu::always_inline]] static value read(const std::byte* from) noexcept {
    return Set::template widen<typename T::format>(from);
  }
  [[gnu::always_inline]] static void write(std::byte* to, value v) noexcept {
    Set::template narrow<typename T::format>(to, v);
  }
};

/// Registers of an instruction set, and how f32 and the smaller floats meet where it has nothing better.
/// `Floats` are calculated at a time, of 16- and 8-bit types.
template <std::size_t RegisterBytes, std::size_t Floats>
struct vector_registers {
  static constexpr std::size_t register_bytes = RegisterBytes;
  static constexpr std::size_t floats = Floats;
  using float_vector = vec<float, floats>;
  using bit_vector = vec<std::int32_t, floats>;

  template <class Format>
  [[gnu::always_inline]] static float_vector widen(const std::byte* from) noexcept {
    using codes = vec<typename Format::code_type, floats>;
    return decode<Format, float_vector>(__builtin_convertvector(load<codes>(from), bit_vector));
  }
  template <class Format>
  [[gnu::always_inline]] static void narrow(std::byte* to, float_vector v) noexcept {
    using codes = vec<typename Format::code_type, floats>;
    store(to, __builtin_convertvector(encode<Format, bit_vector>(v), codes));
  }
};

}  // namespace chorale::detail
