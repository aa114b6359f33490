// Rule: no co_await in a catch block (the language forbids it): move the exception_ptr out, then await.
#include "pin.hpp"

namespace {

pin::task<int> fails() {
  const int code = 42;
  throw code;
  co_return code;
}

pin::task<int> cleans_up(pin::counted what) {
  const int result = what.value;
  co_return result;
}

pin::task<int> caller() {
  std::exception_ptr caught;
  try {
    const int unreachable = co_await fails();
    co_return unreachable;
  } catch (...) {
    caught = std::current_exception();
  }
  pin::counted left{8};
  const int cleaned = co_await cleans_up(std::move(left));
  int code = 0;
  try {
    std::rethrow_exception(caught);
  } catch (int thrown) {
    code = thrown;
  }
  co_return cleaned + code;
}

}  // namespace

int main() {
  pin::check(caller().run() == 50, "clean-up awaited after the catch block, exception kept");
  pin::check(pin::counted::living == 0, "every object destroyed once");
  return pin::failures;
}
