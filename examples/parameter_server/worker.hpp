// A worker: pulls the parameters, computes a gradient on its share of the images, pushes it, again and again.
//
// It may come, go and be killed at any time; the others do not wait for it as long as enough are left to
// close versions. Whatever was acknowledged is in the servers' memory.
#pragma once

#include "digits/dataset.hpp"
#include <chorale/chorale.hpp>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace parameter_server {

struct worker_options {
  std::vector<std::string> servers;
  std::string secret;
  std::uint32_t worker = 0;
  std::size_t batch = 100;
  std::uint64_t seed = 1;
  std::uint64_t most_pushes = std::numeric_limits<std::uint64_t>::max();
  int times = 1;               ///< each push is sent so often, as if answers were lost
  std::filesystem::path acks;  ///< a line per acknowledged push: server, number; empty: nowhere
  bool speaks = true;
};

/// Works until the training is over or `most_pushes` were made, then leaves. Throws `failure` with
/// errc::peer_lost when a server dies: its parameters are gone.
[[nodiscard]] chorale::task<> work(worker_options options, const digits::dataset& images,
                                   std::vector<std::size_t> widths);

}  // namespace parameter_server
