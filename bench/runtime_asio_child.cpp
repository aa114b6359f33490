#include "runtime_asio.hpp"

namespace chorale::bench {

asio::awaitable<int> asio_child(int value) {
  const int mine = value;
  co_return mine;
}

}  // namespace chorale::bench
