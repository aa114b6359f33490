// C++ types as elements: `dtype_of<float>` is dtype::f32.
#pragma once

#include <chorale/kernels/dtype.hpp>
#include <chorale/kernels/small_float.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace chorale {

template <class T>
inline constexpr dtype dtype_of = dtype::none;
template <>
inline constexpr dtype dtype_of<std::int8_t> = dtype::i8;
template <>
inline constexpr dtype dtype_of<std::uint8_t> = dtype::u8;
template <>
inline constexpr dtype dtype_of<std::byte> = dtype::u8;
template <>
inline constexpr dtype dtype_of<std::int32_t> = dtype::i32;
template <>
inline constexpr dtype dtype_of<std::uint32_t> = dtype::u32;
template <>
inline constexpr dtype dtype_of<std::int64_t> = dtype::i64;
template <>
inline constexpr dtype dtype_of<std::uint64_t> = dtype::u64;
template <>
inline constexpr dtype dtype_of<float> = dtype::f32;
template <>
inline constexpr dtype dtype_of<double> = dtype::f64;

template <>
inline constexpr dtype dtype_of<f16> = dtype::f16;
template <>
inline constexpr dtype dtype_of<bf16> = dtype::bf16;
template <>
inline constexpr dtype dtype_of<f8e4m3> = dtype::f8e4m3;
template <>
inline constexpr dtype dtype_of<f8e5m2> = dtype::f8e5m2;

/// A type whose values can be sent.
template <class T>
concept element = dtype_of<std::remove_cv_t<T>> != dtype::none;

}  // namespace chorale
