// Rule: no co_await under &&, || or ?:.
// g++ evaluates parts of the half that should not run (GCC PR112360); clang once used a dead frame (LLVM
// #59181).
#include "pin.hpp"

namespace {

int calls = 0;

pin::task<bool> ask(bool answer) {
  ++calls;
  co_return answer;
}

pin::task<int> both() {
  bool all = co_await ask(false);
  if (all) all = co_await ask(true);
  int picked = 0;
  if (all) {
    picked = 1;
  } else {
    const bool other = co_await ask(true);
    picked = other ? 2 : 3;
  }
  co_return picked;
}

}  // namespace

int main() {
  pin::check(both().run() == 2, "the right half was chosen");
  pin::check(calls == 2, "the other half was not evaluated");
  return pin::failures;
}
