#include "verdict.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace chorale::bench::versus {
namespace {

constexpr double tie = 0.02;

std::string two_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

}  // namespace

outcome outcome_of(double ratio) noexcept {
  if (ratio > 1 + tie) return outcome::won;
  return ratio < 1 / (1 + tie) ? outcome::lost : outcome::tied;
}

std::string_view name_of(outcome o) noexcept {
  constexpr std::string_view names[] = {"won", "tied", "lost"};
  return names[static_cast<std::size_t>(o)];
}

std::string text_of_bytes(std::uint64_t bytes) {
  constexpr const char* units[] = {" B", " KiB", " MiB", " GiB"};
  std::size_t unit = 0;
  while (unit + 1 < std::size(units) && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + units[unit];
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void verdict::add(std::uint64_t bytes, double ratio, const std::string& peer) {
  all_.push_back({bytes, ratio, peer});
}

double verdict::geometric_mean() const {
  double logs = 0;
  for (const entry& e : all_) logs += std::log(e.ratio);
  return all_.empty() ? 1 : std::exp(logs / static_cast<double>(all_.size()));
}

int verdict::count(outcome o) const {
  return static_cast<int>(
      std::ranges::count_if(all_, [o](const entry& e) { return outcome_of(e.ratio) == o; }));
}

std::string verdict::summary() const {
  if (all_.empty()) return "nothing was compared";
  const entry& worst = *std::ranges::min_element(all_, {}, &entry::ratio);
  std::string text = "geometric mean " + two_digits(geometric_mean()) + ", worst " + two_digits(worst.ratio) +
                     " at " + text_of_bytes(worst.bytes) + " to " + worst.peer + ";";
  for (const outcome o : {outcome::won, outcome::tied, outcome::lost})
    text += (o == outcome::won ? " " : ", ") + std::to_string(count(o)) + " " + std::string{name_of(o)};
  return text;
}

std::string verdict::losses() const {
  std::string text;
  for (const entry& e : all_)
    if (outcome_of(e.ratio) == outcome::lost)
      text += (text.empty() ? "lost: " : ", ") + text_of_bytes(e.bytes) + " " + two_digits(e.ratio) + " to " +
              e.peer;
  return text;
}

}  // namespace chorale::bench::versus
