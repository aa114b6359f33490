// Rule: where symmetric transfer is no tail call (-O0, sanitizers), hop through the ready queue.
// A million synchronous awaits must need no stack (GCC PR94794; clang at -O0 alike). The awaiter below is
// what the library's task does there: it queues the next coroutine and returns to the loop.
#include "pin.hpp"

#include <deque>

namespace {

std::deque<std::coroutine_handle<>> ready;

struct hop {
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> self) const { ready.push_back(self); }
  void await_resume() const noexcept {}
};

pin::task<int> one() {
  const hop to_loop;
  co_await to_loop;
  co_return 1;
}

pin::task<int> many(int rounds) {
  int sum = 0;
  for (int i = 0; i < rounds; ++i) {
    const int got = co_await one();
    sum += got;
  }
  co_return sum;
}

int result = 0;

pin::task<int> root() {
  const int sum = co_await many(1'000'000);
  result = sum;
  co_return sum;
}

}  // namespace

int main() {
  pin::task<int> work = root();
  (void)work.run();  // up to the first hop
  while (!ready.empty()) {
    const std::coroutine_handle<> next = ready.front();
    ready.pop_front();
    next.resume();
  }
  pin::check(result == 1'000'000, "a million synchronous awaits");
  return pin::failures;
}
