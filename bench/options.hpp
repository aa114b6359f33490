// What `chorale bench` was asked to measure, and the sizes that follow from it. Flags as in nccl-tests.
#pragma once

#include <chorale/async/error.hpp>
#include <chorale/kernels/dtype.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace chorale::bench {

enum class report_format { table, json, markdown };

struct bench_options {
  std::uint64_t begin = 8;  ///< bytes
  std::uint64_t end = 16u << 20;
  std::uint64_t step = 0;  ///< bytes added from size to size; 0: multiply by `factor`
  std::uint64_t factor = 4;
  int iterations = 0;  ///< timed calls per size; 0: as many as fit about a quarter of a second, at least 20
  int warmup = 5;
  bool check = true;
  report_format format = report_format::table;
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  rank_t root = 0;
  std::string algorithm;           ///< empty: the communicator's choice
  std::string required_transport;  ///< refuse to measure another; empty: any
};

/// Sizes in bytes from `begin` to `end`; the end is always among them.
[[nodiscard]] inline std::vector<std::uint64_t> sizes_of(const bench_options& o) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t s = o.begin; s < o.end;) {
    sizes.push_back(s);
    if (o.step == 0 && s > o.end / o.factor) break;
    s = o.step != 0 ? s + o.step : s * o.factor;
  }
  sizes.push_back(o.end);
  return sizes;
}

}  // namespace chorale::bench
