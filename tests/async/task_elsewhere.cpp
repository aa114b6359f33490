#include "task_elsewhere.hpp"

#include <stdexcept>

namespace chorale::testing {

task<int> one_elsewhere() {
  const int value = 1;
  co_return value;
}

task<std::unique_ptr<int>> owned_elsewhere(int value) {
  auto owned = std::make_unique<int>(value);
  co_return std::move(owned);
}

task<> throws_elsewhere() {
  const char* what = "thrown elsewhere";
  throw std::runtime_error{what};
  co_return;
}

}  // namespace chorale::testing
