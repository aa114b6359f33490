// Times one collective on host memory through a communicator, and checks its result.
//
// Every rank of the communicator makes the same calls of the meter in the same order. Before each timed call
// the input is rewritten, outside the time. Belongs to the communicator's thread; the communicator outlives
// it. Errors of the collective come out as `failure`.
#pragma once

#include "collectives.hpp"
#include "pattern.hpp"
#include "plain_buffer.hpp"
#include <chorale/chorale.hpp>

#include <cstdint>
#include <vector>

namespace chorale::bench {

struct meter_subject {
  const benched_collective* what = nullptr;
  std::uint64_t count = 0;  ///< elements of one share, or of the whole
  bool in_place = false;
};

struct timing {
  double time_us = 0;  ///< of one call: the mean over calls, on the rank where it is largest
  double p99_us = 0;   ///< of this rank
};

class meter {
 public:
  meter(communicator& comm, dtype type, reduction op, rank_t root)
      : comm_{comm}, type_{type}, op_{op}, root_{root} {}
  meter(const meter&) = delete;
  meter& operator=(const meter&) = delete;

  /// What the next calls are about. Buffers grow as needed.
  void set(const meter_subject& subject);
  /// Elements that are wrong after one call, on all ranks together. Buffers hold zeros afterwards.
  [[nodiscard]] task<std::uint64_t> check();
  [[nodiscard]] task<timing> time(int iterations, int warmup);
  /// How many calls fit into `budget`, at least `least`; the same number on every rank.
  [[nodiscard]] task<int> choose_iterations(duration budget, int least);

 private:
  struct buffers {
    std::byte* in = nullptr;
    std::byte* out = nullptr;
  };
  enum class half { sending, receiving };  // of a sendrecv, which is two calls
  [[nodiscard]] call call_on(buffers where, half part) const;
  [[nodiscard]] bool is_exchange() const noexcept { return subject_.what->kind == collective_kind::message; }
  [[nodiscard]] task<void> call_once();
  [[nodiscard]] task<double> slowest(double mine);

  communicator& comm_;
  dtype type_;
  reduction op_;
  rank_t root_;
  meter_subject subject_;
  plain_buffer in_;
  plain_buffer out_;
  described_call first_;
  described_call second_;  ///< of a sendrecv
  std::vector<duration> samples_;
};

}  // namespace chorale::bench
