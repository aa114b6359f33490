// Folding on a GPU: element types × operations, on words and vectors of elements in registers.
//
// The numbers are the host's (docs/numbers.md): a left fold in rank order; 16- and 8-bit floats in f32 with
// one rounding at the end; integers wrap; min and max are IEEE 754-2019 minimum and maximum; averages divide
// before that rounding; premul_sum rounds each product to the type, multiplied by the sender's scalar. A NaN
// that leaves is the type's one NaN. Compiled without contraction (meson.build). Pure, any thread.
#pragma once

#include <chorale/kernels/dtype.hpp>
#include <chorale/kernels/protocol.hpp>
#include <chorale/kernels/small_float.hpp>

#include <type_traits>

namespace chorale::kernels {

/// Types as kernels see them: integers of one width share code and are told apart where signs matter.
template <class Code>
struct integer_lane {
  using code = Code;
  using acc = std::conditional_t<sizeof(Code) == 8, std::uint64_t, std::uint32_t>;
  static constexpr bool is_integer = true;

  CHORALE_HOST_DEVICE static acc widen(code c) { return c; }
  CHORALE_HOST_DEVICE static code narrow(acc a) { return static_cast<code>(a); }
  CHORALE_HOST_DEVICE static acc add(acc a, acc b) { return a + b; }
  CHORALE_HOST_DEVICE static acc multiply(acc a, acc b) { return a * b; }
  /// Ordered like unsigned numbers.
  CHORALE_HOST_DEVICE static code ordered(acc a, bool is_signed) {
    constexpr code sign = static_cast<code>(code{1} << (8 * sizeof(code) - 1));
    return static_cast<code>(static_cast<code>(a) ^ (is_signed ? sign : code{0}));
  }
  CHORALE_HOST_DEVICE static acc lesser(acc a, acc b, bool is_signed) {
    return ordered(b, is_signed) < ordered(a, is_signed) ? b : a;
  }
  CHORALE_HOST_DEVICE static acc greater(acc a, acc b, bool is_signed) {
    return ordered(a, is_signed) < ordered(b, is_signed) ? b : a;
  }
  /// Truncates towards zero.
  CHORALE_HOST_DEVICE static acc divide(acc a, std::uint32_t ranks, bool is_signed) {
    using signed_code = std::make_signed_t<code>;
    using wide = std::conditional_t<sizeof(Code) == 8, std::int64_t, std::int32_t>;
    const code c = narrow(a);
    if (is_signed)
      return static_cast<acc>(static_cast<wide>(static_cast<signed_code>(c)) / static_cast<wide>(ranks));
    return static_cast<acc>(c) / ranks;
  }
  CHORALE_HOST_DEVICE static code finish(acc a) { return narrow(a); }
  CHORALE_HOST_DEVICE static code choose(acc a) { return narrow(a); }
};

/// f32 and f64.
template <class Float, class Code>
struct float_lane {
  using code = Code;
  using acc = Float;
  static constexpr bool is_integer = false;
  static constexpr code sign = code{1} << (8 * sizeof(code) - 1);
  static constexpr code nan = static_cast<code>(~sign);
  static constexpr code infinity =
      sizeof(code) == 4 ? static_cast<code>(0x7f800000u) : static_cast<code>(0x7ff0000000000000ull);

  CHORALE_HOST_DEVICE static acc widen(code c) { return __builtin_bit_cast(acc, c); }
  CHORALE_HOST_DEVICE static code bits(acc a) { return __builtin_bit_cast(code, a); }
  CHORALE_HOST_DEVICE static code narrow(acc a) { return a == a ? bits(a) : nan; }
  CHORALE_HOST_DEVICE static acc add(acc a, acc b) { return a + b; }
  CHORALE_HOST_DEVICE static acc multiply(acc a, acc b) { return a * b; }
  CHORALE_HOST_DEVICE static bool is_nan(acc a) { return (bits(a) & nan) > infinity; }
  /// Sign and magnitude as an unsigned number of the same order: -0 comes before +0.
  CHORALE_HOST_DEVICE static code ordered(acc a) {
    const code c = bits(a);
    return (c & sign) != 0 ? static_cast<code>(~c) : static_cast<code>(c | sign);
  }
  CHORALE_HOST_DEVICE static acc lesser(acc a, acc b, bool) {
    return is_nan(a) || is_nan(b) ? widen(nan) : ordered(b) < ordered(a) ? b : a;
  }
  CHORALE_HOST_DEVICE static acc greater(acc a, acc b, bool) {
    return is_nan(a) || is_nan(b) ? widen(nan) : ordered(a) < ordered(b) ? b : a;
  }
  CHORALE_HOST_DEVICE static acc divide(acc a, std::uint32_t ranks, bool) {
    return a / static_cast<acc>(ranks);
  }
  CHORALE_HOST_DEVICE static code finish(acc a) {
#if defined(__CUDA_ARCH__)
    if constexpr (sizeof(code) == 4) return bits(a);  // the hardware's additions make no other NaN
#endif
    return narrow(a);
  }
  CHORALE_HOST_DEVICE static code choose(acc a) { return narrow(a); }
};
using f32_lane = float_lane<float, std::uint32_t>;
using f64_lane = float_lane<double, std::uint64_t>;

/// 16- and 8-bit floats, accumulated in f32.
template <class Small>
struct small_lane {
  using code = typename Small::code_type;
  using acc = float;
  using format = typename Small::format;
  static constexpr bool is_integer = false;

#if defined(__CUDA_ARCH__)
  CHORALE_HOST_DEVICE static acc from_half(std::uint16_t half) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(half));
    return wide;
  }
  CHORALE_HOST_DEVICE static acc widen(code c) {
    if constexpr (std::is_same_v<Small, f16>) return from_half(c);
    if constexpr (std::is_same_v<Small, bf16>)
      return __builtin_bit_cast(float, static_cast<std::uint32_t>(c) << 16);
    if constexpr (sizeof(code) == 1) {
      std::uint32_t halves;
      const std::uint16_t pair = c;
      if constexpr (std::is_same_v<Small, f8e4m3>)
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
      else
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(pair));
      return from_half(static_cast<std::uint16_t>(halves));
    }
  }
  CHORALE_HOST_DEVICE static code narrow(acc a) {
    std::uint16_t made;
    if constexpr (std::is_same_v<Small, f16>) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(made) : "f"(a));
    if constexpr (std::is_same_v<Small, bf16>) asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(made) : "f"(a));
    if constexpr (std::is_same_v<Small, f8e4m3>)
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(made) : "f"(0.0f), "f"(a));
    if constexpr (std::is_same_v<Small, f8e5m2>)
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(made) : "f"(0.0f), "f"(a));
    return static_cast<code>(made);
  }
#else
  CHORALE_HOST_DEVICE static acc widen(code c) { return static_cast<float>(Small::from_bits(c)); }
  CHORALE_HOST_DEVICE static code narrow(acc a) { return Small{a}.bits; }
#endif
  CHORALE_HOST_DEVICE static acc add(acc a, acc b) { return a + b; }
  CHORALE_HOST_DEVICE static acc multiply(acc a, acc b) { return a * b; }
  CHORALE_HOST_DEVICE static acc lesser(acc a, acc b, bool s) { return f32_lane::lesser(a, b, s); }
  CHORALE_HOST_DEVICE static acc greater(acc a, acc b, bool s) { return f32_lane::greater(a, b, s); }
  CHORALE_HOST_DEVICE static acc divide(acc a, std::uint32_t ranks, bool) {
    return a / static_cast<acc>(ranks);
  }
  CHORALE_HOST_DEVICE static code finish(acc a) { return narrow(a); }
  /// One of the elements: an infinity stays one, where arithmetic makes it the largest finite value.
  CHORALE_HOST_DEVICE static code choose(acc a) {
    constexpr bool saturates = format::infinity == 0x7c && sizeof(code) == 1;
    if constexpr (saturates) {
      const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, a);
      if ((bits & 0x7fffffffu) == 0x7f800000u)
        return static_cast<code>((bits >> 24) & 0x80u) | format::infinity;
    }
    return narrow(a);
  }
};

/// Any operation: which one is known at run time. `Op` of `fold_of` may fix it instead.
inline constexpr reduction any_reduction = reduction::none;

/// What a fold needs to know besides its operands.
struct fold_setting {
  const std::uint64_t* scalars = nullptr;  ///< by rank, in shared memory
  std::uint32_t ranks = 0;
  reduction op = reduction::none;
  bool is_signed = false;
};

/// A fold of `Lane` elements in registers, `N` at a time. Operands are words of memory: N elements in N ×
/// sizeof(code) / 8 words, or a single element in the low bits of one.
template <class Lane, reduction Op>
class fold_of {
 public:
  using lane = Lane;
  using code = typename Lane::code;
  using acc = typename Lane::acc;
  static constexpr bool folds = true;
  static constexpr std::uint32_t per_word = word_bytes / sizeof(code);

  CHORALE_HOST_DEVICE explicit fold_of(const fold_setting& how) : how_{how} {}

  template <std::uint32_t N>
  struct accumulator {
    acc v[N];
  };
  template <std::uint32_t N>
  static constexpr std::uint32_t words = (N + per_word - 1) / per_word;

  template <std::uint32_t N>
  CHORALE_HOST_DEVICE void begin(accumulator<N>& a, const std::uint64_t (&w)[words<N>],
                                 std::uint32_t rank) const {
    CHORALE_UNROLL
    for (std::uint32_t k = 0; k < N; ++k) a.v[k] = operand(element(w[k / per_word], k % per_word), rank);
  }
  template <std::uint32_t N>
  CHORALE_HOST_DEVICE void add(accumulator<N>& a, const std::uint64_t (&w)[words<N>],
                               std::uint32_t rank) const {
    accumulator<N> b;
    begin(b, w, rank);
    switch (op()) {
      default:  // sum, avg, premul_sum
        return each(a, b, [](acc x, acc y) { return Lane::add(x, y); });
      case reduction::prod:
        return each(a, b, [](acc x, acc y) { return Lane::multiply(x, y); });
      case reduction::min:
        return each(a, b, [s = how_.is_signed](acc x, acc y) { return Lane::lesser(x, y, s); });
      case reduction::max:
        return each(a, b, [s = how_.is_signed](acc x, acc y) { return Lane::greater(x, y, s); });
      case reduction::bit_and:
        if constexpr (Lane::is_integer) return each(a, b, [](acc x, acc y) { return x & y; });
        return;
      case reduction::bit_or:
        if constexpr (Lane::is_integer) return each(a, b, [](acc x, acc y) { return x | y; });
        return;
      case reduction::bit_xor:
        if constexpr (Lane::is_integer) return each(a, b, [](acc x, acc y) { return x ^ y; });
        return;
    }
  }
  template <std::uint32_t N>
  CHORALE_HOST_DEVICE void finish(const accumulator<N>& a, std::uint64_t (&w)[words<N>]) const {
    CHORALE_UNROLL
    for (std::uint32_t i = 0; i < words<N>; ++i) w[i] = 0;
    CHORALE_UNROLL
    for (std::uint32_t k = 0; k < N; ++k)
      w[k / per_word] |= static_cast<std::uint64_t>(result(a.v[k])) << (8 * sizeof(code) * (k % per_word));
  }
  [[nodiscard]] CHORALE_HOST_DEVICE bool scales() const { return op() == reduction::premul_sum; }

 private:
  CHORALE_HOST_DEVICE reduction op() const { return Op != any_reduction ? Op : how_.op; }
  CHORALE_HOST_DEVICE static code element(std::uint64_t word, std::uint32_t k) {
    return static_cast<code>(word >> (8 * sizeof(code) * k));
  }
  CHORALE_HOST_DEVICE acc operand(code c, std::uint32_t rank) const {
    if (!scales()) return Lane::widen(c);
    const acc factor = Lane::widen(static_cast<code>(how_.scalars[rank]));
    return Lane::widen(Lane::narrow(Lane::multiply(Lane::widen(c), factor)));
  }
  CHORALE_HOST_DEVICE code result(acc a) const {
    if (op() == reduction::avg) return Lane::narrow(Lane::divide(a, how_.ranks, how_.is_signed));
    if (op() == reduction::min || op() == reduction::max) return Lane::choose(a);
    return Lane::finish(a);
  }
  template <std::uint32_t N, class Combine>
  CHORALE_HOST_DEVICE static void each(accumulator<N>& a, const accumulator<N>& b, Combine combine) {
    CHORALE_UNROLL
    for (std::uint32_t k = 0; k < N; ++k) a.v[k] = combine(a.v[k], b.v[k]);
  }
  fold_setting how_;
};

/// In the place of a fold where arrivals are copied.
struct no_fold {
  static constexpr bool folds = false;
  CHORALE_HOST_DEVICE explicit no_fold(const fold_setting&) {}
  [[nodiscard]] CHORALE_HOST_DEVICE bool scales() const { return false; }
};

}  // namespace chorale::kernels
