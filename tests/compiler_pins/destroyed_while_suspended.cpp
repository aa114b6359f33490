// Rule: a task that never ran may be destroyed, and frees its arguments once; one that ended frees its locals
// before its awaiter goes on.
#include "pin.hpp"

namespace {

pin::task<int> holds(pin::counted argument) {
  pin::counted local{1};
  co_return argument.value + local.value;
}

pin::task<int> caller() {
  pin::counted argument{4};
  const int sum = co_await holds(argument);
  // The temporary task is gone with its full expression: the argument's copy and the local as well.
  pin::check(pin::counted::living == 1, "the child's frame is gone after the await");
  co_return sum;
}

}  // namespace

int main() {
  {
    const pin::task<int> never_run = holds(pin::counted{9});
    pin::check(pin::counted::living == 1, "a task that never ran holds its argument");
  }
  pin::check(pin::counted::living == 0, "it freed its argument once");
  pin::check(caller().run() == 5, "sum of argument and local");
  pin::check(pin::counted::living == 0, "every object destroyed once");
  return pin::failures;
}
