// chorale/asio.hpp with Boost.Asio (Boost 1.81 or newer) in the place of standalone Asio: what is said there
// holds here, with boost::asio for asio, and boost::system::error_code for std::error_code. Codes compare
// with chorale::errc in the same way.
#pragma once

#include <chorale/api/boost_asio.hpp>
#include <chorale/api/hosted_communicator.hpp>
