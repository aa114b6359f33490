// What the driver of a comparison and the programs it compares say to each other: lines of text.
//
//   driver → every rank    run COLLECTIVE BYTES ITERATIONS WARMUP
//                          check COLLECTIVE BYTES
//   rank 0 → driver        = ready NAME                once, when all ranks are connected
//                          = TIME P99                  of a run: microseconds of one call
//                          = WRONG                     of a check: wrong elements on all ranks
//                          = no REASON                 the command cannot be served; the program goes on
//
// Lines that do not begin with "= " are not for the driver. Elements are f32, reductions sums, the root is 0.
// BYTES is a multiple of ranks × 4. Programs end when their commands do.
#pragma once

#include "../collectives.hpp"
#include "../subject.hpp"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>

namespace chorale::bench::peers {

struct command {
  enum class verb { run, check };
  verb act = verb::run;
  subject about;
  int iterations = 1;
  int warmup = 0;
};

/// Empty when it is none that this program knows.
[[nodiscard]] inline std::optional<command> parse_command(const std::string& line, rank_t ranks) {
  std::istringstream words{line};
  std::string verb;
  std::string collective;
  std::uint64_t bytes = 0;
  command c;
  words >> verb >> collective >> bytes;
  if (!words || (verb != "run" && verb != "check")) return std::nullopt;
  if (verb == "check")
    c.act = command::verb::check;
  else if (!(words >> c.iterations >> c.warmup) || c.iterations < 1 || c.warmup < 0)
    return std::nullopt;
  c.about.what = find_collective(collective);
  if (!c.about.what) return std::nullopt;
  c.about.count = count_for(*c.about.what, bytes, c.about.type, ranks);
  return c;
}

inline void say(const std::string& answer) {
  std::printf("= %s\n", answer.c_str());
  std::fflush(stdout);
}
inline void say_refusal(const std::string& why) { say("no " + why); }
inline void say_timing(double time_us, double p99_us) {
  say(std::to_string(time_us) + " " + std::to_string(p99_us));
}

}  // namespace chorale::bench::peers
