// Communicators with Asio's completion tokens; chorale.hpp itself knows no Asio.
#pragma once

#include <chorale/api/asio.hpp>
#include <chorale/api/hosted_communicator.hpp>
