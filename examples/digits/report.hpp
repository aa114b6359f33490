// What a person sees of a training run: a bar (on a terminal) or lines, and the table at the end.
//
// Only rank 0 reports. Numbers come in as values; nothing here measures or communicates.
#pragma once

#include "trainer.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>

namespace digits {

/// Progress over a known number of epochs. On a terminal one line is rewritten; elsewhere about ten lines
/// appear.
class progress_bar {
 public:
  progress_bar(std::FILE* out, std::size_t epochs);
  void show(std::size_t epochs_done, score training) const;

 private:
  std::FILE* out_;
  std::size_t epochs_;
  bool terminal_;
};

struct rank_times {
  double computing = 0;  ///< seconds
  double exposed = 0;    ///< seconds
  double on_core = 0;    ///< seconds; the part of `exposed` spent working rather than waiting
};

struct outcome {
  score test;
  std::size_t test_count = 0;
  std::chrono::duration<double> wall{};
  std::span<const rank_times> ranks;
  std::uint64_t fingerprint = 0;
};

[[nodiscard]] std::string table(const outcome& outcome);

}  // namespace digits
