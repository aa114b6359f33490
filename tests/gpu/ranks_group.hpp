// What every scenario needs: a device group for this rank, waiting for launches, and a count of failures.
#pragma once

#include "device.hpp"
#include "rank_processes.hpp"
#include "scenarios.hpp"
#include <chorale/kernels/device_group.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>

namespace chorale::gpu_test {

/// Prints what went wrong; the scenario goes on so that one run shows all.
class verdicts {
 public:
  explicit verdicts(const rank_setting& setting) : rank_{setting.rank} {}
  void expect(bool held, const std::string& what) {
    if (held) return;
    ++failures_;
    if (failures_ <= 20) std::printf("  rank %d: FAILED: %s\n", rank_, what.c_str());
    std::fflush(stdout);
  }
  [[nodiscard]] int code() const { return failures_ == 0 ? 0 : 1; }

 private:
  int rank_;
  int failures_ = 0;
};

inline std::unique_ptr<cuda::device_group> make_group(const rank_setting& s, std::size_t which,
                                                      rank_exchange& exchange, int size,
                                                      std::uint64_t first_counter = 0) {
  cuda::device_group_config config;
  config.rank = size == 1 ? 0 : s.rank;
  config.size = size;
  config.device = s.device;
  config.ranks_share_gpu = s.one_gpu;
  if (s.one_gpu) config.proof_timeout = std::chrono::seconds{60};
  config.generation = static_cast<std::uint32_t>(which + 1);
  config.first_counter = first_counter;
  return cuda::device_group::create(config, exchange).value();
}

/// Waits for a launch as an engine would: by its flag.
inline void await(const cuda::device_group& group, const cuda::completion& c) {
  while (!group.is_done(c)) std::this_thread::yield();
}

}  // namespace chorale::gpu_test
