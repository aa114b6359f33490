// Rule: function arguments are evaluated in an order that compilers choose (clang from the left, g++ from the
// right), so tickets are numbered inside braces, where the order is fixed: from the left.
#include "pin.hpp"

#include <array>

namespace {

struct numbered {
  int number;
};

int next = 0;
numbered ticket() { return {next++}; }

pin::task<int> caller() {
  const std::array<numbered, 4> tickets{ticket(), ticket(), ticket(), ticket()};
  int in_order = 0;
  for (int i = 0; i < 4; ++i) in_order += tickets[static_cast<std::size_t>(i)].number == i ? 1 : 0;
  co_return in_order;
}

}  // namespace

int main() {
  pin::check(caller().run() == 4, "tickets in braces are numbered from the left");
  return pin::failures;
}
