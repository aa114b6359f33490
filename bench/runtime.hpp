// What the coroutine runtime itself costs: `chorale bench runtime`.
//
// A child coroutine in another translation unit is created, awaited and finished, below a stop source and a
// deadline; and a coroutine takes a turn through the ready queue. Beside them the same with asio::awaitable,
// where Asio was there at build time. CPU time; repeats are interleaved, medians shown.
#pragma once

#include <cstddef>

namespace chorale::bench {

struct runtime_bench_options {
  std::size_t iterations = 200'000;  ///< per repeat
  int repeats = 21;
};

/// Prints the table; 0, or 1 when a target was missed (15 ns a child, 1.5 times Asio, 20 ns a turn, no
/// allocation).
int bench_runtime(const runtime_bench_options& options);

/// Nanoseconds of one child and of one turn with Asio; negative in builds without it.
struct asio_runtime_costs {
  double child = -1;
  double turn = -1;
};
[[nodiscard]] asio_runtime_costs measure_asio_runtime(std::size_t iterations);

}  // namespace chorale::bench
