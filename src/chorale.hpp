// Everything a user of chorale needs for host memory; nothing of CUDA, verbs, liburing or Asio comes with it.
#pragma once

#include <chorale/api/communicator.hpp>
#include <chorale/api/endpoint.hpp>
#include <chorale/async/as_result.hpp>
#include <chorale/async/engine.hpp>
#include <chorale/async/event.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/async/sleep.hpp>
#include <chorale/async/when.hpp>
#include <chorale/async/with_environment.hpp>
