// The α–β model of an algorithm: time = α + β · bytes, fitted to measured points.
#pragma once

#include <cstdint>
#include <span>

namespace chorale::bench::versus {

struct cost_point {
  std::uint64_t bytes = 0;
  double time_us = 0;
};

struct cost_fit {
  double alpha_us = 0;
  double beta_us_per_byte = 0;
  double worst_error = 0;  ///< of the model at a point, relative to the measured time

  [[nodiscard]] double at(std::uint64_t bytes) const noexcept {
    return alpha_us + beta_us_per_byte * static_cast<double>(bytes);
  }
};

/// Least squares of relative errors, so that 8 bytes count as much as 64 MiB; neither number is negative.
/// Times are positive. A single point is all α.
[[nodiscard]] cost_fit fit_cost(std::span<const cost_point> points) noexcept;

}  // namespace chorale::bench::versus
