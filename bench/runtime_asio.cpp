#include "runtime_asio.hpp"

#include "cpu_watch.hpp"
#include "runtime.hpp"

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

namespace chorale::bench {
namespace {

asio::awaitable<void> await_children(std::size_t iterations, double& nanoseconds) {
  long sum = 0;
  const cpu_watch whole;
  for (std::size_t i = 0; i < iterations; ++i) sum += co_await asio_child(static_cast<int>(i & 1));
  nanoseconds = whole.per(iterations);
  if (sum != static_cast<long>(iterations / 2)) nanoseconds = -1;
}

asio::awaitable<void> take_turns(std::size_t iterations, double& nanoseconds) {
  const auto executor = co_await asio::this_coro::executor;
  const cpu_watch whole;
  for (std::size_t i = 0; i < iterations; ++i) co_await asio::post(executor, asio::use_awaitable);
  nanoseconds = whole.per(iterations);
}

}  // namespace

asio_runtime_costs measure_asio_runtime(std::size_t iterations) {
  asio_runtime_costs costs;
  // One thread promised: Asio then leaves out its locks, as an engine has none.
  asio::io_context loop{1};
  asio::co_spawn(loop, await_children(iterations, costs.child), asio::detached);
  loop.run();
  loop.restart();
  asio::co_spawn(loop, take_turns(iterations, costs.turn), asio::detached);
  loop.run();
  return costs;
}

}  // namespace chorale::bench
