// Rule: no lambda temporaries inside an await expression: name them first.
// g++ 12 destroys closure temporaries with non-trivial captures twice (GCC PR99576, PR100611, PR98401).
#include "pin.hpp"

namespace {

template <class Function>
pin::task<int> call(Function function) {
  const int result = function();
  co_return result;
}

pin::task<int> caller() {
  pin::counted kept{5};
  auto closure = [kept] { return kept.value; };
  const int first = co_await call(closure);
  auto moved = [held = std::move(kept)] { return held.value * 10; };
  const int second = co_await call(std::move(moved));
  co_return first + second;
}

}  // namespace

int main() {
  pin::check(caller().run() == 55, "values captured by named closures");
  pin::check(pin::counted::living == 0, "every capture destroyed once");
  return pin::failures;
}
