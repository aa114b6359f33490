// The operations on vectors of elements. Private to the host_kernels_*.cpp files; always inlined, see
// host_lanes.hpp.
#pragma once

#include <chorale/kernels/host_lanes.hpp>

namespace chorale::detail {

struct add {
  template <class V>
  [[gnu::always_inline]] static V apply(V left, V right) noexcept {
    return left + right;
  }
};
struct multiply {
  template <class V>
  [[gnu::always_inline]] static V apply(V left, V right) noexcept {
    return left * right;
  }
};
struct lesser {
  template <class V>
  [[gnu::always_inline]] static V apply(V left, V right) noexcept {
    return right < left ? right : left;
  }
};
struct greater {
  template <class V>
  [[gnu::always_inline]] static V apply(V left, V right) noexcept {
    return left < right ? right : left;
  }
};
struct both_bits {
  template <class V>
  [[gnu::always_inline]] static V apply(V left, V right) noexcept {
    return left & right;
  }
};
struct either_bits {
  template <class V>
  [[gnu::always_inline]] static V apply(V left, V right) noexcept {
    return left | right;
  }
};
struct differing_bits {
  template <class V>
  [[gnu::always_inline]] static V apply(V left, V right) noexcept {
    return left ^ right;
  }
};

/// minimum and maximum of floats T, given as bits: sign and magnitude become an integer of the same order,
/// where −0 comes before +0.
template <class T, class Choice>
struct by_order {
  template <class V>
  [[gnu::always_inline]] static V ordered(V bits) noexcept {
    return bits ^ ((bits < 0) & nan_bits<T>);
  }
  template <class V>
  [[gnu::always_inline]] static V apply(V left, V right) noexcept {
    const V chosen = ordered(Choice::apply(ordered(left), ordered(right)));
    const V some_nan =
        ((left & nan_bits<T>) > infinity_of<T>::bits) | ((right & nan_bits<T>) > infinity_of<T>::bits);
    return some_nan ? V{} + nan_bits<T> : chosen;
  }
};

}  // namespace chorale::detail
