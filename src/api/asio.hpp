// What standalone Asio (1.22 and newer) calls the things that the adapter uses, and the adapter under these
// names. chorale/asio.hpp says what it does.
#pragma once

// clang with libstdc++: Asio 1.22 looks for coroutines where they are not.
#if defined(__clang__) && defined(__cpp_impl_coroutine)
#if !defined(ASIO_HAS_CO_AWAIT)
#define ASIO_HAS_CO_AWAIT 1
#endif
#if !defined(ASIO_HAS_STD_COROUTINE)
#define ASIO_HAS_STD_COROUTINE 1
#endif
#endif

#include <asio/associated_allocator.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/error.hpp>
#include <asio/execution.hpp>
#include <asio/execution_context.hpp>
#include <asio/post.hpp>
#include <asio/prefer.hpp>
#include <asio/query.hpp>
#include <asio/system_executor.hpp>

#include <system_error>

namespace chorale::detail {

namespace net = ::asio;
using net_error_code = std::error_code;
using net_system_error = std::system_error;

}  // namespace chorale::detail

#include <chorale/api/asio_adapter.ipp>
#include <chorale/api/asio_use_task.ipp>
