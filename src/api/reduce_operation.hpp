// How a reduction combines elements: one of the operations of dtype.hpp, a premultiplied sum, or the
// application's own function. A plain value; `sum`, `avg`, … convert to it by themselves.
//
//   comm.all_reduce(grad, chorale::avg);
//   comm.all_reduce(grad, chorale::premul_sum(0.5f));  // each rank's own factor; factors may differ
//   comm.all_reduce(keys, chorale::user_reduction{"longest", take_longest});
//
// What each computes, for which types, and where it rounds: docs/numbers.md.
#pragma once

#include <chorale/collective/call.hpp>
#include <chorale/collective/user_reduction.hpp>
#include <chorale/kernels/element.hpp>

#include <array>
#include <cstddef>
#include <cstring>

namespace chorale {

inline constexpr reduction sum = reduction::sum;
inline constexpr reduction prod = reduction::prod;
inline constexpr reduction min = reduction::min;
inline constexpr reduction max = reduction::max;
inline constexpr reduction avg = reduction::avg;
inline constexpr reduction bit_and = reduction::bit_and;
inline constexpr reduction bit_or = reduction::bit_or;
inline constexpr reduction bit_xor = reduction::bit_xor;

class reduce_operation {
 public:
  reduce_operation(reduction op) noexcept : op_{op} {}   // NOLINT(google-explicit-constructor)
  reduce_operation(const user_reduction& user) noexcept  // NOLINT(google-explicit-constructor)
      : op_{reduction::user}, user_{user} {}

  /// Writes itself into a call.
  void describe(call& what) const noexcept {
    what.op = op_;
    what.user = user_;
    what.scalar = scalar_;
    what.scalar_type = scalar_type_;
  }

 private:
  template <element T>
  friend reduce_operation premul_sum(T factor) noexcept;
  reduction op_;
  user_reduction user_;
  std::array<std::byte, 8> scalar_{};
  dtype scalar_type_ = dtype::none;
};

/// The sum of every rank's values times that rank's `factor`, which has the elements' type.
template <element T>
[[nodiscard]] reduce_operation premul_sum(T factor) noexcept {
  reduce_operation made{reduction::premul_sum};
  static_assert(sizeof(T) <= 8);
  std::memcpy(made.scalar_.data(), &factor, sizeof factor);
  made.scalar_type_ = dtype_of<T>;
  return made;
}

}  // namespace chorale
