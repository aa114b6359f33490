// One run of one ending: what is started, what is done to it, and what its ranks must then have seen.
#pragma once

#include "job.hpp"

#include <string>
#include <vector>

namespace endings {

struct settings {
  std::string tool;          ///< the `chorale` command
  std::string rank_program;  ///< rank.cpp
  std::uint64_t operations = 1000;
  std::uint64_t resident = 0;
};

struct outcome {
  std::vector<std::string> complaints;  ///< empty: all as promised
  std::vector<double> waits_ms;         ///< of survivors: from the ending, or their await, to the await's end
  std::vector<double> resets_ms;
};

/// Seed, kind and transport ("shm", "tcp", or "net": two hosts with two ranks each) say everything about the
/// run. Any thread.
[[nodiscard]] outcome run_once(const settings& with, kind what, const std::string& transport,
                               std::uint64_t seed);

/// What awaits may take; sanitizers and busy machines are given more by `slack`.
struct limits {
  double median_ms;
  double worst_ms;
};
[[nodiscard]] limits limits_for(kind what);

}  // namespace endings
