#include "runtime.hpp"

#include "cpu_watch.hpp"
#include "runtime_child.hpp"
#include <chorale/async/engine.hpp>
#include <chorale/async/frame_pool.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/with_environment.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace chorale::bench {
namespace {

constexpr double child_target = 15;   // ns
constexpr double turn_target = 20;    // ns
constexpr double ratio_target = 1.5;  // Asio's child over ours

struct reading {
  double nanoseconds;
  std::uint64_t allocations;
};

/// Measures from its construction to `end`.
class measurement {
 public:
  [[nodiscard]] reading end(std::size_t iterations) const {
    return {watch_.per(iterations), frame_heap_allocations() - allocations_};
  }

 private:
  std::uint64_t allocations_ = frame_heap_allocations();
  cpu_watch watch_;
};

task<reading> await_children(std::size_t iterations) {
  long sum = co_await runtime_child(0);  // its frame is in the pool from here on
  const measurement whole;
  for (std::size_t i = 0; i < iterations; ++i) {
    const int one = co_await runtime_child(static_cast<int>(i & 1));
    sum += one;
  }
  reading result = whole.end(iterations);
  if (sum != static_cast<long>(iterations / 2)) result.nanoseconds = -1;
  co_return result;
}

task<reading> take_turns(std::size_t iterations) {
  const measurement whole;
  for (std::size_t i = 0; i < iterations; ++i) co_await yield{};
  co_return whole.end(iterations);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool print_row(const char* what, const std::vector<double>& ours, const std::vector<double>& asios,
               double target) {
  const double own = median(ours);
  const double asio = median(asios);
  std::printf("%-44s %10.1f ns", what, own);
  if (asio > 0)
    std::printf(" %12.1f ns %9.2f", asio, asio / own);
  else
    std::printf(" %15s %9s", "-", "-");
  std::printf("   at most %.0f ns%s\n", target, own <= target ? "" : "  MISSED");
  return own <= target;
}

}  // namespace

int bench_runtime(const runtime_bench_options& options) {
  engine loop;
  std::vector<double> children;
  std::vector<double> turns;
  std::vector<double> asio_children;
  std::vector<double> asio_turns;
  std::uint64_t allocations = 0;
  using namespace std::chrono_literals;
  loop.run(with_timeout(1h, await_children(1000)));
  for (int i = 0; i < options.repeats; ++i) {
    const reading child = loop.run(with_timeout(1h, await_children(options.iterations)));
    const reading turn = loop.run(with_timeout(1h, take_turns(options.iterations)));
    const asio_runtime_costs asio = measure_asio_runtime(options.iterations);
    children.push_back(child.nanoseconds);
    turns.push_back(turn.nanoseconds);
    asio_children.push_back(asio.child);
    asio_turns.push_back(asio.turn);
    allocations += child.allocations + turn.allocations;
  }
  std::printf("medians of %d interleaved repeats of %zu, CPU time, below a stop source and a deadline\n",
              options.repeats, options.iterations);
  std::printf("%-44s %13s %15s %9s   %s\n", "", "chorale", "asio", "asio/ours", "target");
  bool met = print_row("child coroutine created, awaited, finished", children, asio_children, child_target);
  met = print_row("one turn through the ready queue", turns, asio_turns, turn_target) && met;
  const double asio_child = median(asio_children);
  if (asio_child > 0 && asio_child < ratio_target * median(children)) {
    std::printf("MISSED: Asio's child should cost at least %.1f times ours\n", ratio_target);
    met = false;
  }
  std::printf("frames taken from the heap while measuring: %llu%s\n",
              static_cast<unsigned long long>(allocations), allocations == 0 ? "" : "  MISSED: should be 0");
  return met && allocations == 0 ? 0 : 1;
}

}  // namespace chorale::bench
