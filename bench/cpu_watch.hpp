// A stop watch that counts the calling thread's CPU time: on a machine shared with others, what the scheduler
// gives to them is not the code's cost.
#pragma once

#include <cstddef>
#include <ctime>

namespace chorale::bench {

class cpu_watch {
 public:
  /// Nanoseconds of CPU time since construction, divided by `iterations`.
  [[nodiscard]] double per(std::size_t iterations) const noexcept {
    return (now() - begun_) / static_cast<double>(iterations);
  }

 private:
  static double now() noexcept {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e9 * static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec);
  }
  double begun_ = now();
};

}  // namespace chorale::bench
