// Communicators in plain code: calls that wait for their end, on any thread. See
// api/blocking_communicator.hpp.
#pragma once

#include <chorale/api/blocking_communicator.hpp>
