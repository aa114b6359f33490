// Asio's counterpart of runtime_child.hpp.
#pragma once

// Asio 1.22 does not recognise clang with libstdc++ as having coroutines.
#ifndef ASIO_HAS_CO_AWAIT
#define ASIO_HAS_CO_AWAIT 1
#endif
#ifndef ASIO_HAS_STD_COROUTINE
#define ASIO_HAS_STD_COROUTINE 1
#endif
#include <asio/awaitable.hpp>

namespace chorale::bench {

asio::awaitable<int> asio_child(int value);

}  // namespace chorale::bench
