#include "pattern.hpp"

#include <chorale/kernels/element.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace chorale::bench {
namespace {

/// Up to here every integer is a value of the type.
double exact_up_to(dtype type) noexcept {
  switch (type) {
    case dtype::f8e5m2:
      return 8;
    case dtype::f8e4m3:
      return 16;
    case dtype::i8:
      return 127;
    case dtype::u8:
      return 255;
    case dtype::bf16:
      return 256;
    case dtype::f16:
      return 2048;
    default:
      return 1 << 24;
  }
}

bool is_float(dtype type) noexcept {
  switch (type) {
    case dtype::f8e5m2:
    case dtype::f8e4m3:
    case dtype::bf16:
    case dtype::f16:
    case dtype::f32:
    case dtype::f64:
      return true;
    default:
      return false;
  }
}

std::uint64_t hashed(rank_t rank, std::uint64_t index) noexcept {
  const std::uint64_t h =
      (index + 1) * 0x9e3779b97f4a7c15u ^ static_cast<std::uint64_t>(rank) * 0xd1b54a32d192ed03u;
  return (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u >> 40;
}

std::uint64_t as_bits(double whole_number) noexcept { return static_cast<std::uint64_t>(whole_number); }

template <class T>
double widened(T value) noexcept {
  if constexpr (requires { typename T::format; })
    return static_cast<double>(static_cast<float>(value));
  else
    return static_cast<double>(value);
}

template <class T>
T narrowed(double value) noexcept {
  if constexpr (requires { typename T::format; })
    return T{static_cast<float>(value)};
  else
    return static_cast<T>(value);
}

/// Calls `visit` with a value of the type's C++ type.
template <class Visit>
auto with_type(dtype type, Visit visit) {
  switch (type) {
    case dtype::i8:
      return visit(std::int8_t{});
    case dtype::none:
    case dtype::u8:
      return visit(std::uint8_t{});
    case dtype::i32:
      return visit(std::int32_t{});
    case dtype::u32:
      return visit(std::uint32_t{});
    case dtype::i64:
      return visit(std::int64_t{});
    case dtype::u64:
      return visit(std::uint64_t{});
    case dtype::f16:
      return visit(f16{});
    case dtype::bf16:
      return visit(bf16{});
    case dtype::f32:
      return visit(float{});
    case dtype::f64:
      return visit(double{});
    case dtype::f8e4m3:
      return visit(f8e4m3{});
    case dtype::f8e5m2:
      return visit(f8e5m2{});
  }
  __builtin_unreachable();
}

}  // namespace

pattern::pattern(dtype type, reduction op, rank_t ranks) noexcept : type_{type}, op_{op}, ranks_{ranks} {
  const double most = exact_up_to(type) / ranks;
  mask_ = std::bit_floor(static_cast<std::uint64_t>(std::clamp(most, 2.0, 64.0))) - 1;
  const bool sums = op == reduction::sum || op == reduction::avg;
  rounding_ = sums && is_float(type) && most < 2 ? 2.0 * ranks / exact_up_to(type) : 0;
}

double pattern::value(rank_t rank, std::uint64_t index) const noexcept {
  switch (op_) {
    case reduction::prod:  // at most 4, whatever the number of ranks
      return rank < 2 ? static_cast<double>(1 + (hashed(rank, index) & 1)) : 1;
    case reduction::avg: {  // neighbours differ from the average by one, in opposite directions
      const auto average = static_cast<double>(1 + (hashed(0, index) & 1));
      const bool unpaired = rank == ranks_ - 1 && ranks_ % 2 == 1;
      return unpaired ? average : average + (rank % 2 == 0 ? 1 : -1);
    }
    default:
      return static_cast<double>(hashed(rank, index) & mask_);
  }
}

double pattern::combine(double left, double right) const noexcept {
  switch (op_) {
    case reduction::prod:
      return left * right;
    case reduction::min:
      return std::min(left, right);
    case reduction::max:
      return std::max(left, right);
    case reduction::bit_and:
      return static_cast<double>(as_bits(left) & as_bits(right));
    case reduction::bit_or:
      return static_cast<double>(as_bits(left) | as_bits(right));
    case reduction::bit_xor:
      return static_cast<double>(as_bits(left) ^ as_bits(right));
    default:
      return left + right;
  }
}

double pattern::result(const contribution& of) const noexcept {
  double made = value(of.first, of.index);
  for (rank_t r = of.first + 1; r < of.end; ++r) made = combine(made, value(r, of.index));
  return op_ == reduction::avg ? made / (of.end - of.first) : made;
}

double pattern::tolerance(double right) const noexcept { return rounding_ * std::abs(right); }

void pattern::fill(std::byte* in, std::uint64_t count, rank_t rank) const {
  with_type(type_, [&](auto zero) {
    using element = decltype(zero);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto made = narrowed<element>(value(rank, i));
      std::memcpy(in + i * sizeof made, &made, sizeof made);
    }
  });
}

std::uint64_t pattern::count_wrong(const benched_collective& what, const place& at, const std::byte* out,
                                   std::uint64_t count) const {
  return with_type(type_, [&](auto zero) {
    using element = decltype(zero);
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const contribution of = what.made_of(at, i);
      if (of.first == of.end) continue;
      element got;
      std::memcpy(&got, out + i * sizeof got, sizeof got);
      const double right = result(of);
      const double apart = std::abs(widened(got) - right);
      wrong += !(apart <= tolerance(right));  // a NaN is wrong
    }
    return wrong;
  });
}

}  // namespace chorale::bench
