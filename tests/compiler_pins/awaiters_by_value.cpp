// Rule: operator co_await and await_transform return awaiters by value.
// g++ 12.2 calls an awaiter that was returned by reference with a wrong `this` (GCC PR104872).
#include "pin.hpp"

namespace {

struct value_awaiter {
  int value;
  bool await_ready() const noexcept { return true; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  int await_resume() const noexcept { return value; }
};

struct source {
  int value;
  value_awaiter operator co_await() const noexcept { return {value}; }
};

pin::task<int> caller() {
  source three{3};
  const int first = co_await three;
  const source four{4};
  const int second = co_await four;
  co_return first* second;
}

}  // namespace

int main() {
  pin::check(caller().run() == 12, "awaiters returned by value");
  return pin::failures;
}
