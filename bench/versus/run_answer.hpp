// What a side answers to a run, read back.
#pragma once

#include "contestant.hpp"

#include <string>

namespace chorale::bench::versus {

struct run_answer {
  double time_us = 0;
  double p99_us = 0;
};

/// `words` are the collective and its bytes.
[[nodiscard]] result<run_answer> ask_for_run(contestant& who, const std::string& words, int iterations,
                                             int warmup);

/// How many calls fill `sample`, tried with a few; `asked` if that is not 0.
[[nodiscard]] result<int> choose_iterations(contestant& who, const std::string& words, duration sample,
                                            int asked);

}  // namespace chorale::bench::versus
