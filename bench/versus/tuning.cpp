#include "tuning.hpp"

#include "contestant.hpp"
#include "cost_fit.hpp"
#include "run_answer.hpp"
#include "settings.hpp"
#include "verdict.hpp"
#include <chorale/collective/selection.hpp>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <optional>

namespace chorale::bench::versus {
namespace {

constexpr duration to_start = std::chrono::seconds{60};
constexpr duration sample = std::chrono::milliseconds{40};

/// Those that serve every size: the one-line path takes what fits its line, whatever is chosen for the rest.
std::vector<algorithm_kind> algorithms_of(const benched_collective& what) {
  std::vector<algorithm_kind> all;
  for (std::size_t i = 1; i < algorithm_kinds; ++i) {
    const auto algorithm = static_cast<algorithm_kind>(i);
    if (algorithm != algorithm_kind::tiny && serves(algorithm, what.kind)) all.push_back(algorithm);
  }
  return all;
}

result<double> measure(contestant& who, const std::string& words, const tuning_options& options) {
  auto iterations = choose_iterations(who, words, sample, options.common.iterations);
  if (!iterations) return std::move(iterations).error();
  std::vector<double> times;
  for (int i = 0; i < options.samples; ++i) {
    auto took = ask_for_run(who, words, *iterations, std::min(options.common.warmup, *iterations));
    if (!took) return std::move(took).error();
    times.push_back(took->time_us);
  }
  return median(std::move(times));
}

result<std::vector<cost_point>> measure_all(const benched_collective& what, algorithm_kind algorithm,
                                            const tuning_options& options) {
  const match m{&what, options.transport, options.ranks};
  auto started = contestant::start(
      own_plan(m, options.chorale_program, std::string{chorale::name_of(algorithm)}), to_start);
  if (!started) return std::move(started).error();
  std::vector<cost_point> points;
  for (const std::uint64_t size : sizes_of(options.common)) {
    const std::uint64_t bytes =
        bytes_of(what, count_for(what, size, dtype::f32, options.ranks), dtype::f32, options.ranks);
    if (!points.empty() && points.back().bytes == bytes) continue;
    auto time = measure(**started, std::string{what.name} + " " + std::to_string(bytes), options);
    if (!time) return std::move(time).error();
    points.push_back({bytes, *time});
  }
  return points;
}

}  // namespace

result<std::string> tune(const tuning_options& options) {
  nlohmann::ordered_json model;
  model["format"] = 1;
  model["ranks"] = options.ranks;
  model["transport"] = options.transport;
  for (const benched_collective* what : options.collectives)
    for (const algorithm_kind algorithm : algorithms_of(*what)) {
      auto points = measure_all(*what, algorithm, options);
      if (!points) return std::move(points).error();
      const cost_fit fit = fit_cost(*points);
      nlohmann::ordered_json one{{"alpha_us", fit.alpha_us},
                                 {"beta_us_per_byte", fit.beta_us_per_byte},
                                 {"worst_error", fit.worst_error}};
      for (const cost_point& p : *points) one["points"].push_back({p.bytes, p.time_us});
      const std::string name{chorale::name_of(algorithm)};
      std::fprintf(stderr, "%s, %s: %.2f us + %.3f us/MiB, off by up to %.0f %%\n",
                   std::string{what->name}.c_str(), name.c_str(), fit.alpha_us,
                   fit.beta_us_per_byte * (1 << 20), fit.worst_error * 100);
      model["collectives"][std::string{what->name}][name] = std::move(one);
    }
  return model.dump(1) + "\n";
}

}  // namespace chorale::bench::versus
