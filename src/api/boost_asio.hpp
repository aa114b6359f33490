// What Boost.Asio (Boost 1.81 and newer) calls the things that the adapter uses, and the adapter under these
// names. chorale/boost_asio.hpp says what it does.
#pragma once

#include <chorale/async/error.hpp>

#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/system_executor.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>

#include <type_traits>

/// So that `code == chorale::errc::peer_lost` holds for Boost's codes too.
template <>
struct boost::system::is_error_code_enum<chorale::errc> : std::true_type {};

namespace chorale::detail {

// An error here: a file includes chorale/asio.hpp or chorale/boost_asio.hpp, not both.
namespace net = ::boost::asio;
using net_error_code = boost::system::error_code;
using net_system_error = boost::system::system_error;

}  // namespace chorale::detail

#include <chorale/api/asio_adapter.ipp>
#include <chorale/api/asio_use_task.ipp>
