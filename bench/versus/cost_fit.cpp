#include "cost_fit.hpp"

#include <algorithm>
#include <cmath>

namespace chorale::bench::versus {

cost_fit fit_cost(std::span<const cost_point> points) noexcept {
  // Normal equations of α/t + β·b/t ≈ 1.
  double aa = 0;
  double ab = 0;
  double bb = 0;
  double a1 = 0;
  double b1 = 0;
  for (const cost_point& p : points) {
    const double a = 1 / p.time_us;
    const double b = static_cast<double>(p.bytes) / p.time_us;
    aa += a * a;
    ab += a * b;
    bb += b * b;
    a1 += a;
    b1 += b;
  }
  cost_fit fit;
  if (points.empty()) return fit;
  const double determinant = aa * bb - ab * ab;
  if (determinant > 1e-12 * aa * bb) {
    fit.alpha_us = (a1 * bb - b1 * ab) / determinant;
    fit.beta_us_per_byte = (b1 * aa - a1 * ab) / determinant;
  } else {
    fit.alpha_us = a1 / aa;
  }
  // On a boundary the other number alone fits best.
  if (fit.alpha_us < 0) fit = {0, b1 / bb, 0};
  if (fit.beta_us_per_byte < 0) fit = {a1 / aa, 0, 0};
  for (const cost_point& p : points)
    fit.worst_error = std::max(fit.worst_error, std::abs(fit.at(p.bytes) - p.time_us) / p.time_us);
  return fit;
}

}  // namespace chorale::bench::versus
