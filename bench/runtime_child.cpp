#include "runtime_child.hpp"

namespace chorale::bench {

task<int> runtime_child(int value) {
  const int mine = value;
  co_return mine;
}

}  // namespace chorale::bench
