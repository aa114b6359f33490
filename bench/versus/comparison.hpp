// `chorale bench COLL --vs PEER`: chorale and its peers in turn, size by size.
//
// Every side's processes live for the whole table and sleep while another's are measured; starting them is in
// no time. Per size each side first answers a check, then samples are taken in turn, in an order that
// rotates; the median counts, and of a peer's settings the best one. Settings that are far behind after two
// samples of a size are not asked again for that size.
#pragma once

#include "../options.hpp"
#include "contestant.hpp"
#include "settings.hpp"
#include "verdict.hpp"

#include <memory>
#include <string>
#include <vector>

namespace chorale::bench::versus {

struct comparison_options {
  bench_options common;
  match what;
  int alternations = 5;
  duration sample = std::chrono::milliseconds{40};  ///< of one side, once per alternation
};

class comparison {
 public:
  comparison(comparison_options options, contestant_plan ours, std::vector<contestant_plan> peers)
      : options_{std::move(options)}, own_plan_{std::move(ours)}, peer_plans_{std::move(peers)} {}

  /// Prints the table. 0, or 1 when a result was wrong, ours failed, or no peer is left.
  [[nodiscard]] int run();

 private:
  struct side {
    std::unique_ptr<contestant> who;
    std::vector<double> times;  // of the size at hand
    std::vector<double> p99s;
    int iterations = 0;
    bool asked = true;
  };
  struct row {
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
    std::uint64_t wrong = 0;
    double time_us = 0;
    double p99_us = 0;
    const side* peer = nullptr;
    double peer_us = 0;
  };

  result<void> start();
  result<row> measure(std::uint64_t count);
  result<std::uint64_t> check(side& s, const std::string& words);
  result<void> prepare(side& s, const std::string& words);
  result<void> sample(side& s, const std::string& words);
  void drop_stragglers();
  void leave_out(side& s, const error& why);
  result<void> forget_those_left_out();
  void head() const;
  void line(const row& r) const;
  void json(const row& r) const;
  void end() const;

  comparison_options options_;
  contestant_plan own_plan_;
  std::vector<contestant_plan> peer_plans_;
  std::vector<side> sides_;  // ours first
  verdict verdict_;
};

}  // namespace chorale::bench::versus
