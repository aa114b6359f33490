// What test programs of two ranks with a GPU each begin with: whether there are two, and an engine.
#pragma once

#include "device.hpp"
#include <chorale/async/engine.hpp>

#include <cstdio>
#include <exception>

namespace chorale::gpu_test {

inline int count_gpus() {
  auto table = cuda::cuda_driver::load();
  if (!table || (*table)->init(0) != cuda::success) return 0;
  int found = 0;
  (*table)->device_get_count(&found);
  return found;
}

/// The exit code of `work`; 77, with the reason, where there are fewer than two GPUs.
inline int run_with_two_gpus(const char* program, task<int> (*work)()) {
  constexpr int skipped = 77;
  if (const int found = count_gpus(); found < 2) {
    std::printf("skipped: %d GPU(s) here, two are needed\n", found);
    return skipped;
  }
  try {
    engine loop;
    return loop.run(work());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", program, e.what());
    return 1;
  }
}

}  // namespace chorale::gpu_test
