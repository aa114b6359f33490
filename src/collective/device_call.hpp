// Calls as device groups take them: what goes to each rank's GPU and what comes from it.
//
// Pure, any thread; nothing is allocated for calls that are right.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/collective/call.hpp>
#include <chorale/kernels/exchange_call.hpp>

#include <span>

namespace chorale {

/// errc::invalid_argument as `validate_on_stream`; errc::unsupported for collectives that GPUs do not have
/// (scan, exscan).
[[nodiscard]] result<cuda::exchange_call> device_exchange(const call& c, cuda::place_in_group at);

/// Sends and receives that run as one operation, at most one per peer and direction. errc::unsupported where
/// another collective is among them.
[[nodiscard]] result<cuda::exchange_call> device_messages(std::span<const call> calls,
                                                          cuda::place_in_group at);

}  // namespace chorale
