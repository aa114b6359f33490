// A whole job on this host: servers and workers as processes of their own, and this one looking on.
#pragma once

#include "digits/dataset.hpp"
#include "shard.hpp"
#include "worker.hpp"

#include <cstddef>
#include <vector>

namespace parameter_server {

struct local_options {
  std::size_t servers = 2;
  std::uint32_t workers = 3;
  rules by;
  worker_options worker;
};

/// Returns the exit code of the run. Call before the process has a second thread.
[[nodiscard]] int run_local(const local_options& options, const digits::parts& data,
                            const std::vector<std::size_t>& widths, std::uint64_t seed);

}  // namespace parameter_server
