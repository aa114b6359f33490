// Rule: no capturing coroutine lambdas unless awaited in the same expression: pass arguments by value.
// Captures live in the closure, which dies with its expression; arguments taken by value live in the frame.
#include "pin.hpp"

namespace {

pin::task<int> later(int value) {
  auto body = [](pin::counted held, int factor) -> pin::task<int> {
    const int result = held.value * factor;
    co_return result;
  };
  pin::counted argument{value};
  return body(std::move(argument), 3);
}

pin::task<int> caller() {
  pin::task<int> kept = later(11);
  const int result = co_await std::move(kept);
  co_return result;
}

}  // namespace

int main() {
  pin::check(caller().run() == 33, "arguments outlive the closure");
  {
    const pin::task<int> never_run = later(1);
    pin::check(pin::counted::living == 1, "a task that never ran holds its argument");
  }
  pin::check(pin::counted::living == 0, "every argument destroyed once");
  return pin::failures;
}
