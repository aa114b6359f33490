// Rule: await into a named local, never inside a condition; give every body a named local.
// g++ 12 lays the frame out wrongly when a body without variables awaits in a condition (GCC PR106188,
// PR106713).
#include "pin.hpp"

namespace {

pin::task<int> seven() {
  const int result = 7;
  co_return result;
}

pin::task<int> branches() {
  const int left = co_await seven();
  if (left != 7) co_return 1;
  const int right = co_await seven();
  switch (right) {
    case 7:
      co_return 0;
    default:
      co_return 2;
  }
}

pin::task<int> loops() {
  int rounds = 0;
  for (int got = co_await seven(); got == 7 && rounds < 100; ++rounds) {
    const int next = co_await seven();
    got = next;
  }
  co_return rounds;
}

}  // namespace

int main() {
  pin::check(branches().run() == 0, "branching on awaited locals");
  pin::check(loops().run() == 100, "looping on awaited locals");
  return pin::failures;
}
