// Communicators in Asio programs: any completion token, on any executor. With standalone Asio, 1.22 or newer;
// for Boost.Asio include chorale/boost_asio.hpp instead, which gives the same under its names. chorale.hpp
// itself knows neither. A file includes one of the two; where callbacks of plain types (function pointers,
// std::function) are tokens, so does a program.
//
//   #include <chorale/asio.hpp>
//   co_await comm.all_reduce(gradient, chorale::sum, asio::use_awaitable);
//   comm.barrier([](std::error_code why) { … });
//
// The communicator lives on an engine with a thread of its own (hosted_communicator); calls come from any
// thread. Signature: void(error_code). asio::error::operation_aborted after a cancellation, else a
// chorale::errc.
//
// Order: a call takes its place when it is made, not when a lazy token gets round to starting it; see
// foreign_call.hpp for calls from several threads. An operation made with a lazy token and never started ends
// its lane, as every dropped ticket does. Completion is posted to the handler's associated executor (the
// system executor if it has none), which is kept in work meanwhile. Cancellation of any kind stops the
// operation, which ends the lane on every rank. A handler destroyed uninvoked, because its execution context
// goes, first has its operation stopped and waits until it is quiet: the engine must still run then, no peer
// need. Communicator and buffers stay where they are until completion.
#pragma once

#include <chorale/api/asio.hpp>
#include <chorale/api/hosted_communicator.hpp>
