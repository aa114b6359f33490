// The server: one part of the parameters behind a listener.
//
// Everything is requests of whichever peer has one. Answers go out beside each other, so a worker that is
// slow to read, or dies, keeps nobody waiting; a pull for a version that does not exist yet waits here as the
// request it is. The server's memory is all there is: when it dies, so does the job.
#pragma once

#include "shard.hpp"
#include <chorale/chorale.hpp>

#include <filesystem>
#include <string>

namespace parameter_server {

struct server_options {
  std::string address;
  std::string secret;
  std::size_t number = 0;  ///< of this server, among `servers`
  std::size_t servers = 1;
  std::filesystem::path ledger;  ///< written when it ends; empty: nowhere
  bool speaks = true;
  rules by;
};

/// Which part of `total` parameters one of several servers keeps.
struct part {
  std::size_t first = 0;
  std::size_t count = 0;
};
[[nodiscard]] part part_of(std::size_t total, std::size_t number, std::size_t servers);

/// Serves until a stop request of a peer. Throws `failure` when it can not listen.
[[nodiscard]] chorale::task<> serve(server_options options, std::vector<float> initial);

}  // namespace parameter_server
