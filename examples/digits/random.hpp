// Random numbers that are the same with every standard library: splitmix64, as published by Vigna.
// The distributions and std::shuffle of <random> may differ between libraries, and ranks must draw alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace digits {

class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_{seed} {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }

  /// Uniform in [-bound, bound).
  float within(float bound) {
    auto unit = static_cast<float>(next() >> 40U) * 0x1p-24F;
    return (2.0F * unit - 1.0F) * bound;
  }

  /// Uniform in [0, limit), with a bias of less than limit / 2^64.
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(next() % limit); }

 private:
  std::uint64_t state_;
};

/// 0 … count − 1 in random order.
[[nodiscard]] inline std::vector<std::uint32_t> shuffled(std::size_t count, random_source& random) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t left = count; left > 1; --left) std::swap(order[left - 1], order[random.below(left)]);
  return order;
}

}  // namespace digits
