// The tests of the adapter with standalone Asio; boost_asio/ has the same for Boost.Asio.
#pragma once

#include <chorale/asio.hpp>

#include <asio/bind_allocator.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/local/connect_pair.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/strand.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
#include <asio/version.hpp>
#include <asio/write.hpp>
#if ASIO_VERSION >= 102300
#include <asio/as_tuple.hpp>
#include <asio/deferred.hpp>
#else
#include <asio/experimental/as_tuple.hpp>
#include <asio/experimental/deferred.hpp>
#endif

namespace chorale {

using asio_error_code = std::error_code;
using asio_system_error = std::system_error;
#if ASIO_VERSION >= 102300
using asio::as_tuple;
using asio::deferred;
#else
using asio::experimental::as_tuple;
using asio::experimental::deferred;
#endif

}  // namespace chorale
