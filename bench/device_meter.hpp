// Times one collective on GPU memory on this rank, ours beside a peer's.
//
// One engine's thread, whose GPU is current. Collective: all ranks set the same subject and measure together.
#pragma once

#include "../tests/gpu/device.hpp"
#include "device_bench.hpp"
#include "nccl_peer.hpp"
#include "subject.hpp"

#include <functional>
#include <optional>
#include <vector>

namespace chorale::bench {

struct device_row {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  double ours_us = 0;
  double awaited_us = 0;  ///< one call, enqueued and awaited by a coroutine
  std::optional<double> peer_us;
  std::uint64_t wrong = 0;
};

class device_meter {
 public:
  /// `peer` may be null.
  device_meter(communicator& comm, const device_bench_options& options, const nccl_peer* peer)
      : comm_{comm}, options_{options}, peer_{peer} {}

  task<device_row> measure(const subject& about);

 private:
  using buffer = gpu_test::device_floats;
  void set(const subject& about);
  [[nodiscard]] gpu_ticket make() const;
  void enqueue_ours() const;
  [[nodiscard]] int calls_for(std::uint64_t bytes) const noexcept;
  task<std::uint64_t> count_wrong(const subject& about);
  task<double> time_once(std::size_t contender, const gpu_test::captured_graph* graph, int calls);
  task<double> time_awaited();

  communicator& comm_;
  const device_bench_options& options_;
  const nccl_peer* peer_;
  gpu_test::work_stream stream_;
  std::unique_ptr<buffer> in_, out_;
  std::vector<described_call> calls_;  // two for a sendrecv
  std::vector<std::function<void()>> contenders_;
};

}  // namespace chorale::bench
