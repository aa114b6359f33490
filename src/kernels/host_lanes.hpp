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
#include <utility>

namespace chorale::detail {

template <class T, std::size_t Width>
struct vector_of {
  using type [[gnu::vector_size(sizeof(T) * Width)]] = T;
};
template <class T, std::size_t Width>
using vec = typename vector_of<T, Width>::type;

/// One half of a vector, and two vectors as one: g++ would take the way through memory for a bit cast.
template <std::size_t Offset, class T, std::size_t... I>
[[gnu::always_inline]] inline auto some_of(T whole, std::index_sequence<I...>) noexcept {
  return __builtin_shufflevector(whole, whole, static_cast<int>(Offset + I)...);
}
template <class T, std::size_t... I>
[[gnu::always_inline]] inline auto joined(T low, T high, std::index_sequence<I...>) noexcept {
  return __builtin_shufflevector(low, high, static_cast<int>(I)...);
}

/// What is read, calculated with and written at a time. Operations are applied register by register.
template <class Vector, std::size_t Count>
struct registers {
  Vector part[Count];
};

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

/// A register that holds one element.
template <class Set, class T>
struct one_element {
  static constexpr std::size_t register_bytes = sizeof(T);
};

/// Elements as they are.
template <class Set, class T, std::size_t Parts = 1>
struct plain_lanes {
  static constexpr std::size_t element_bytes = sizeof(T);
  static constexpr std::size_t parts = Parts;
  static constexpr std::size_t width = Parts * (Set::register_bytes / sizeof(T));
  using scalar = T;
  using vector = vec<T, Set::register_bytes / sizeof(T)>;
  using value = registers<vector, Parts>;
  using single = plain_lanes<one_element<Set, T>, T>;
  [[gnu::always_inline]] static value read(const std::byte* from) noexcept { return load<value>(from); }
  [[gnu::always_inline]] static void write(std::byte* to, const value& v) noexcept { store(to, v); }
};

/// f32 and f64, whose NaNs become the type's one NaN.
template <class Set, class T>
struct float_lanes : plain_lanes<Set, T> {
  using typename plain_lanes<Set, T>::value;
  using single = float_lanes<one_element<Set, T>, T>;
  [[gnu::always_inline]] static void write(std::byte* to, const value& v) noexcept {
    using bits = vec<bits_of<T>, plain_lanes<Set, T>::width>;
    const auto x = v.part[0];
    // x == x but for a NaN. NOLINTNEXTLINE(misc-redundant-expression)
    store(to, x == x ? __builtin_bit_cast(bits, x) : bits{} + nan_bits<T>);
  }
};

/// 16- and 8-bit floats as f32, in the order of memory.
template <class Set, class T>
struct widened_lanes {
  using format = typename T::format;
  static constexpr std::size_t element_bytes = sizeof(T);
  static constexpr std::size_t parts = Set::template parts<format>;
  static constexpr std::size_t width = parts * Set::floats;
  using scalar = float;
  using vector = vec<float, Set::floats>;
  using value = registers<vector, parts>;
  [[gnu::always_inline]] static value read(const std::byte* from) noexcept {
    return Set::template widen<format>(from);
  }
  [[gnu::always_inline]] static void write(std::byte* to, const value& v) noexcept {
    Set::template narrow<format>(to, v);
  }
};

/// bf16 as f32, neighbours in separate registers: no element moves to another place. For operations whose
/// operands are all bf16, so that a NaN has no bits that would carry when it is rounded.
template <class Set>
struct paired_bf16_lanes {
  static constexpr std::size_t element_bytes = 2;
  static constexpr std::size_t width = 2 * Set::floats;
  using scalar = float;
  using vector = vec<float, Set::floats>;
  using value = registers<vector, 2>;
  using words = vec<std::uint32_t, Set::floats>;
  using codes = vec<std::int16_t, width>;

  [[gnu::always_inline]] static value read(const std::byte* from) noexcept {
    const words pairs = load<words>(from);
    return {__builtin_bit_cast(vector, words(pairs << 16)), __builtin_bit_cast(vector, words(pairs & upper))};
  }
  [[gnu::always_inline]] static void write(std::byte* to, const value& v) noexcept {
    const words pairs = (rounded(v.part[0]) >> 16) | (rounded(v.part[1]) & upper);
    const codes both = __builtin_bit_cast(codes, pairs);
    store(to, (both & nan_bits<bf16>) > infinity_of<bf16>::bits ? codes{} + nan_bits<bf16> : both);
  }

 private:
  static constexpr std::uint32_t upper = 0xffff0000;
  [[gnu::always_inline]] static words rounded(vector v) noexcept {
    const words bits = __builtin_bit_cast(words, v);
    return bits + 0x7fffu + ((bits >> 16) & 1u);
  }
};

/// Registers of an instruction set, and how f32 and the smaller floats meet where it has nothing better.
template <std::size_t RegisterBytes>
struct vector_registers {
  static constexpr std::size_t register_bytes = RegisterBytes;
  static constexpr std::size_t floats = RegisterBytes / sizeof(float);
  using float_vector = vec<float, floats>;
  using bit_vector = vec<std::int32_t, floats>;

  /// Registers of f32 that are read or written at a time.
  template <class Format>
  static constexpr std::size_t parts = 1;

  template <class Format>
  [[gnu::always_inline]] static registers<float_vector, 1> widen(const std::byte* from) noexcept {
    using codes = vec<typename Format::code_type, floats>;
    return {decode<Format, float_vector>(__builtin_convertvector(load<codes>(from), bit_vector))};
  }
  template <class Format>
  [[gnu::always_inline]] static void narrow(std::byte* to, const registers<float_vector, 1>& v) noexcept {
    using codes = vec<typename Format::code_type, floats>;
    store(to, __builtin_convertvector(encode<Format, bit_vector>(v.part[0]), codes));
  }

  /// Lanes for Op of two T, and for T · scalar with Op = multiply.
  template <class Set, class T, class Op>
  struct combining {
    using lanes = widened_lanes<Set, T>;
  };
  template <class Set, class Op>
  struct combining<Set, bf16, Op> {
    using lanes = paired_bf16_lanes<Set>;
  };
};

}  // namespace chorale::detail
