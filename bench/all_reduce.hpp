// `chorale bench all_reduce`: how long an all-reduce of host memory takes, by size, with its result checked.
//
// Columns and options follow nccl-tests: time is the average of back-to-back calls, averaged over ranks;
// algbw is bytes over time; busbw is algbw · 2(n − 1)/n.
#pragma once

#include <chorale/async/task.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace chorale::bench {

enum class report_format { table, json };

struct all_reduce_options {
  std::uint64_t begin = 8;  ///< bytes
  std::uint64_t end = 16u << 20;
  std::uint64_t step = 0;  ///< bytes added from size to size; 0: multiply by `factor`
  std::uint64_t factor = 4;
  int iterations = 0;  ///< timed calls per size; 0: as many as fit about a quarter of a second, at least 20
  int warmup = 5;
  bool check = true;
  report_format format = report_format::table;
  std::string algorithm;           ///< empty: the communicator's choice
  std::string required_transport;  ///< refuse to measure another; empty: any
};

/// Sizes in bytes from `begin` to `end`; the end is always among them.
[[nodiscard]] std::vector<std::uint64_t> sizes_of(const all_reduce_options& options);

/// Joins the job this process is a rank of, and measures. Rank 0 prints. 0, or 1 if a result was wrong.
[[nodiscard]] task<int> bench_all_reduce(all_reduce_options options);

}  // namespace chorale::bench
