// Numbers that look random and come from one seed: the same on every machine and standard library.
#pragma once

#include <cstdint>

namespace chorale {

/// splitmix64.
class seeded_random {
 public:
  explicit constexpr seeded_random(std::uint64_t seed) noexcept : state_{seed} {}

  constexpr std::uint64_t next() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// 0 … n − 1. Precondition: n > 0.
  constexpr std::uint64_t below(std::uint64_t n) noexcept { return next() % n; }
  /// True once in `n` times.
  constexpr bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }
  /// 1 … 2^bits, every power of two as likely as the next: for times whose scale is not known.
  constexpr std::uint64_t up_to_power(unsigned bits) noexcept {
    return 1 + below(std::uint64_t{1} << (1 + below(bits)));
  }

 private:
  std::uint64_t state_;
};

}  // namespace chorale
