#include "run_answer.hpp"

#include <algorithm>
#include <sstream>

namespace chorale::bench::versus {
namespace {

constexpr duration patience = std::chrono::seconds{120};
constexpr int tries = 2;
constexpr int most_iterations = 5000;

}  // namespace

result<run_answer> ask_for_run(contestant& who, const std::string& words, int iterations, int warmup) {
  auto said =
      who.ask("run " + words + " " + std::to_string(iterations) + " " + std::to_string(warmup), patience);
  if (!said) return std::move(said).error();
  run_answer t;
  std::istringstream numbers{*said};
  if (!(numbers >> t.time_us >> t.p99_us))
    return error{errc::protocol_error, who.plan().label() + " answered \"" + *said + "\" to a run"};
  return t;
}

result<int> choose_iterations(contestant& who, const std::string& words, duration sample, int asked) {
  if (asked != 0) return asked;
  auto tried = ask_for_run(who, words, tries, 1);
  if (!tried) return std::move(tried).error();
  const double fitting = static_cast<double>(sample.count()) / 1e3 / std::max(tried->time_us, 0.01);
  return static_cast<int>(std::clamp(fitting, double{tries}, double{most_iterations}));
}

}  // namespace chorale::bench::versus
