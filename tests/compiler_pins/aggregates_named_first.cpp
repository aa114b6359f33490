// Rule: no brace-built aggregate temporaries inside an await expression: build option structs as locals.
// g++ 11 and 12 end the temporary's life wrongly (GCC PR107288).
#include "pin.hpp"

namespace {

struct options {
  pin::counted limit{0};
  int retries = 0;
};

pin::task<int> act(options chosen) {
  const int result = chosen.limit.value + chosen.retries;
  co_return result;
}

pin::task<int> caller() {
  options chosen{pin::counted{40}, 2};
  const int copied = co_await act(chosen);
  const int moved = co_await act(std::move(chosen));
  co_return copied + moved;
}

}  // namespace

int main() {
  pin::check(caller().run() == 84, "fields of a named aggregate");
  pin::check(pin::counted::living == 0, "every field destroyed once");
  return pin::failures;
}
