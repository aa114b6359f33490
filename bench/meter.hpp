// Times one collective on host memory through a communicator, and checks its result.
//
// Every rank of the communicator makes the same calls of the meter in the same order. Before each timed call
// the input is rewritten, outside the time. Belongs to the communicator's thread; the communicator outlives
// it. Errors of the collective come out as `failure`.
#pragma once

#include "collectives.hpp"
#include "pattern.hpp"
#include "plain_buffer.hpp"
#include "subject.hpp"
#include <chorale/chorale.hpp>

#include <cstdint>
#include <vector>

namespace chorale::bench {

struct timing {
  double time_us = 0;  ///< of one call: the mean over calls, on the rank where it is largest
  double p99_us = 0;   ///< of this rank
};

class meter {
 public:
  explicit meter(communicator& comm) : comm_{comm} {}
  meter(const meter&) = delete;
  meter& operator=(const meter&) = delete;

  /// What the next calls are about. Buffers grow as needed.
  void set(const subject& about);
  /// Elements that are wrong after one call, on all ranks together. Buffers hold zeros afterwards.
  [[nodiscard]] task<std::uint64_t> check();
  [[nodiscard]] task<timing> time(int iterations, int warmup);
  /// How many calls fit into `budget`, at least `least`; the same number on every rank.
  [[nodiscard]] task<int> choose_iterations(duration budget, int least);

 private:
  [[nodiscard]] task<void> call_once();
  [[nodiscard]] task<double> slowest(double mine);

  communicator& comm_;
  subject about_;
  plain_buffer in_;
  plain_buffer out_;
  described_call first_;
  described_call second_;  ///< of a sendrecv
  std::vector<duration> samples_;
};

}  // namespace chorale::bench
