// Takes runtime_asio.cpp's place in builds without Asio.
#include "runtime.hpp"

namespace chorale::bench {

asio_runtime_costs measure_asio_runtime(std::size_t) { return {}; }

}  // namespace chorale::bench
