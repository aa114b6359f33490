// What `chorale bench COLL` prints: nccl-tests' table, or JSON with one object a row.
//
// time is the mean over calls on the slowest rank (a rank that only sends is done early), p99 that of rank 0;
// algbw is bytes over time, busbw that times the collective's factor. Rank 0 prints.
#pragma once

#include "collectives.hpp"
#include "meter.hpp"
#include "options.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace chorale::bench {

struct measurement {
  timing took;
  std::uint64_t wrong = 0;
};

struct row {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  measurement out_of_place;
  std::optional<measurement> in_place;
};

class report {
 public:
  report(const benched_collective& what, const bench_options& options, rank_t ranks, std::string transport)
      : what_{what}, options_{options}, ranks_{ranks}, transport_{std::move(transport)} {}

  void head() const;
  void line(const row& r) const;
  void end(std::uint64_t wrong) const;

 private:
  [[nodiscard]] double algbw(const row& r, const measurement& m) const;
  [[nodiscard]] double busbw(const row& r, const measurement& m) const;
  void json(const row& r, const measurement& m, bool in_place) const;
  const benched_collective& what_;
  const bench_options& options_;
  rank_t ranks_;
  std::string transport_;
};

/// "shm", "tcp", "mixed", or "self".
[[nodiscard]] std::string transport_of(const communicator& comm);

}  // namespace chorale::bench
