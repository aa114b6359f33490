// The loops of the reductions of host memory, and the table that a host_kernels_*.cpp file makes of them for
// its instruction set. Private to these files; see host_lanes.hpp for what keeps their copies apart.
#pragma once

#include <chorale/kernels/element.hpp>
#include <chorale/kernels/host_kernel_table.hpp>
#include <chorale/kernels/host_lanes.hpp>
#include <chorale/kernels/host_operations.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace chorale::detail {

/// Elements that do not fill a register, with zeros behind them.
template <class Lanes>
[[gnu::always_inline]] inline auto read_some(const std::byte* from, std::size_t count) noexcept {
  std::byte padded[Lanes::width * Lanes::element_bytes] = {};
  __builtin_memcpy(padded, from, count * Lanes::element_bytes);
  return Lanes::read(padded);
}
template <class Lanes>
[[gnu::always_inline]] inline void write_some(std::byte* to, typename Lanes::value v,
                                              std::size_t count) noexcept {
  std::byte padded[Lanes::width * Lanes::element_bytes];
  Lanes::write(padded, v);
  __builtin_memcpy(to, padded, count * Lanes::element_bytes);
}

/// The operation, register by register.
template <class Apply, class... Vector, std::size_t Count>
[[gnu::always_inline]] inline auto apply_to(Apply apply, const registers<Vector, Count>&... in) noexcept {
  registers<decltype(apply(in.part[0]...)), Count> out;
  for (std::size_t k = 0; k < Count; ++k) out.part[k] = apply(in.part[k]...);
  return out;
}

/// out[i] = apply(in[i]…), all read before it is written. What lies behind the last whole register is
/// calculated first, in a register that may reach back over elements which the loop calculates too: `out` may
/// be an input.
template <class Out, class... In, class Apply, class... Pointer>
[[gnu::always_inline]] inline void transform(std::byte* out, std::size_t count, Apply apply,
                                             Pointer... in) noexcept {
  constexpr std::size_t width = Out::width;
  static_assert(((In::width == width) && ...));
  if (count < width) {
    if (count != 0) write_some<Out>(out, apply_to(apply, read_some<In>(in, count)...), count);
    return;
  }
  const std::size_t last = count - width;
  const auto rest = apply_to(apply, In::read(in + last * In::element_bytes)...);
  for (std::size_t i = 0; i < last; i += width)
    Out::write(out + i * Out::element_bytes, apply_to(apply, In::read(in + i * In::element_bytes)...));
  Out::write(out + last * Out::element_bytes, rest);
}

template <class T>
concept small_float_element = requires { typename T::format; };
template <class T>
concept float_element = small_float_element<T> || std::floating_point<T>;

/// How T is added and multiplied, and divided.
template <class Set, class T, class Op>
struct arithmetic {
  using lanes = plain_lanes<Set, std::make_unsigned_t<T>>;  // unsigned: sums wrap
  static auto number(T element) noexcept { return static_cast<std::make_unsigned_t<T>>(element); }
};
template <class Set, std::floating_point T, class Op>
struct arithmetic<Set, T, Op> {
  using lanes = float_lanes<Set, T>;
  using dividing = lanes;
  static T number(T element) noexcept { return element; }
};
template <class Set, small_float_element T, class Op>
struct arithmetic<Set, T, Op> {
  using lanes = typename Set::template combining<Set, T, Op>::lanes;
  using dividing = widened_lanes<Set, T>;
  static float number(T element) noexcept { return static_cast<float>(element); }
};

/// Lanes and operation of T ⊕ T.
template <class Set, class T, class Op>
struct combination {
  using lanes = typename arithmetic<Set, T, Op>::lanes;
  using operation = Op;
};
template <class Set, class T, class Choice>
  requires std::same_as<Choice, lesser> || std::same_as<Choice, greater>
struct combination<Set, T, Choice> {
  using lanes = plain_lanes<Set, T>;
  using operation = Choice;
};
template <class Set, float_element T, class Choice>
  requires std::same_as<Choice, lesser> || std::same_as<Choice, greater>
struct combination<Set, T, Choice> {
  using lanes = plain_lanes<Set, bits_of<T>>;
  using operation = by_order<T, Choice>;
};

template <class Set, class T, class Op>
void combine(std::byte* out, const std::byte* left, const std::byte* right, std::size_t count) noexcept {
  using how = combination<Set, T, Op>;
  using lanes = typename how::lanes;
  const auto apply = [](auto l, auto r) { return how::operation::apply(l, r); };
  // The shortest calls are single elements: faster than padding a register, which waits for its own stores.
  if constexpr (requires { typename lanes::single; })
    if (count < lanes::width) {
      using single = typename lanes::single;
      return transform<single, single, single>(out, count, apply, left, right);
    }
  transform<lanes, lanes, lanes>(out, count, apply, left, right);
}

template <class Set, class T>
void divide_into(std::byte* out, const std::byte* in, std::size_t count, std::uint32_t ranks) noexcept {
  if constexpr (float_element<T>) {
    using lanes = typename arithmetic<Set, T, multiply>::dividing;
    const auto divisor = typename lanes::vector{} + static_cast<typename lanes::scalar>(ranks);
    transform<lanes, lanes>(out, count, [=](auto v) { return v / divisor; }, in);
  } else {
    using wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    const wide divisor = ranks;
    for (std::size_t i = 0; i < count; ++i)
      store(out + i * sizeof(T), static_cast<T>(wide{load<T>(in + i * sizeof(T))} / divisor));
  }
}

template <class Set, class T>
void divide(std::byte* inout, std::size_t count, std::uint32_t ranks) noexcept {
  divide_into<Set, T>(inout, inout, count, ranks);
}

template <class Set, class T>
void scale(std::byte* out, const std::byte* in, std::size_t count, const std::byte* scalar) noexcept {
  using lanes = typename arithmetic<Set, T, multiply>::lanes;
  const auto factor = typename lanes::vector{} + arithmetic<Set, T, multiply>::number(load<T>(scalar));
  transform<lanes, lanes>(out, count, [=](auto v) { return multiply::apply(v, factor); }, in);
}

/// Folding with the type itself as accumulator.
template <class Set, class T, class Op>
struct fold_in_place {
  static void copy(std::byte* out, const std::byte* in, std::size_t count) noexcept {
    if (out != in) __builtin_memcpy(out, in, count * sizeof(T));
  }
  static void finish_divided(std::byte* out, const std::byte* acc, const std::byte* in, std::size_t count,
                             std::uint32_t ranks) noexcept {
    combine<Set, T, Op>(out, acc, in, count);
    divide<Set, T>(out, count, ranks);
  }
  static constexpr host_folding folding(bool average) noexcept {
    host_folding made{sizeof(T), copy, combine<Set, T, Op>, combine<Set, T, Op>, copy};
    if (average) made.finish_divided = finish_divided, made.round_divided = divide_into<Set, T>;
    return made;
  }
};

/// Folding 16- and 8-bit floats in f32. The accumulator's NaNs stay as they are; what leaves is the type's
/// one NaN.
template <class Set, class T, class Op>
struct fold_widened {
  using narrow = widened_lanes<Set, T>;
  using wide = plain_lanes<Set, float, narrow::parts>;

  static void begin(std::byte* acc, const std::byte* in, std::size_t count) noexcept {
    transform<wide, narrow>(acc, count, [](auto v) { return v; }, in);
  }
  static void fold(std::byte* out, const std::byte* acc, const std::byte* in, std::size_t count) noexcept {
    transform<wide, wide, narrow>(out, count, [](auto a, auto v) { return Op::apply(a, v); }, acc, in);
  }
  static void finish(std::byte* out, const std::byte* acc, const std::byte* in, std::size_t count) noexcept {
    transform<narrow, wide, narrow>(out, count, [](auto a, auto v) { return Op::apply(a, v); }, acc, in);
  }
  static void round(std::byte* out, const std::byte* acc, std::size_t count) noexcept {
    transform<narrow, wide>(out, count, [](auto a) { return a; }, acc);
  }
  static void finish_divided(std::byte* out, const std::byte* acc, const std::byte* in, std::size_t count,
                             std::uint32_t ranks) noexcept {
    const auto divisor = typename wide::vector{} + static_cast<float>(ranks);
    transform<narrow, wide, narrow>(
        out, count, [=](auto a, auto v) { return Op::apply(a, v) / divisor; }, acc, in);
  }
  static void round_divided(std::byte* out, const std::byte* acc, std::size_t count,
                            std::uint32_t ranks) noexcept {
    const auto divisor = typename wide::vector{} + static_cast<float>(ranks);
    transform<narrow, wide>(out, count, [=](auto a) { return a / divisor; }, acc);
  }
  static constexpr host_folding folding(bool average) noexcept {
    host_folding made{sizeof(float), begin, fold, finish, round};
    if (average) made.finish_divided = finish_divided, made.round_divided = round_divided;
    return made;
  }
};

template <class Set, class T, class Op, bool Widened = false>
constexpr void offer(host_kernels_of_type& row, reduction op) noexcept {
  using folder = std::conditional_t<Widened, fold_widened<Set, T, Op>, fold_in_place<Set, T, Op>>;
  row.combine[static_cast<std::size_t>(op)] = combine<Set, T, Op>;
  row.folding[static_cast<std::size_t>(op)] = folder::folding(op == reduction::avg);
}

template <class Set, class T>
constexpr void offer_type(host_kernel_table& table) noexcept {
  host_kernels_of_type& row = table.of[static_cast<std::size_t>(dtype_of<T>)];
  constexpr bool widened = small_float_element<T>;
  for (reduction op : {reduction::sum, reduction::avg, reduction::premul_sum})
    offer<Set, T, add, widened>(row, op);
  offer<Set, T, multiply, widened>(row, reduction::prod);
  offer<Set, T, lesser>(row, reduction::min);
  offer<Set, T, greater>(row, reduction::max);
  if constexpr (std::integral<T>) {
    offer<Set, T, both_bits>(row, reduction::bit_and);
    offer<Set, T, either_bits>(row, reduction::bit_or);
    offer<Set, T, differing_bits>(row, reduction::bit_xor);
  }
  row.divide = divide<Set, T>;
  row.scale = scale<Set, T>;
}

template <class Set, class... T>
constexpr host_kernel_table offer_types() noexcept {
  host_kernel_table table;
  (offer_type<Set, T>(table), ...);
  return table;
}

template <class Set>
constexpr host_kernel_table make_host_kernels() noexcept {
  return offer_types<Set, std::int8_t, std::uint8_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t,
                     f16, bf16, float, double, f8e4m3, f8e5m2>();
}

}  // namespace chorale::detail
