#include "device_all_reduce.hpp"

#include "../tests/gpu/device.hpp"
#include "nccl_peer.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <vector>

namespace chorale::bench {
namespace {

using gpu_test::captured_graph;
using gpu_test::device_floats;
using gpu_test::work_stream;

/// Sums of these are exact in f32.
float value_of(rank_t rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 64);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct row {
  std::uint64_t bytes = 0;
  double ours_us = 0;
  double awaited_us = 0;  ///< one call, enqueued and awaited by a coroutine
  std::optional<double> peer_us;
  std::uint64_t wrong = 0;
};

class meter {
 public:
  meter(communicator& comm, const device_all_reduce_options& options, const nccl_peer* peer)
      : comm_{comm},
        options_{options},
        peer_{peer},
        most_{static_cast<std::size_t>(options.common.end / sizeof(float))},
        in_{most_},
        out_{most_} {}

  task<row> measure(std::uint64_t bytes) {
    row r;
    count_ = static_cast<std::size_t>(bytes / sizeof(float));
    r.bytes = count_ * sizeof(float);
    if (options_.common.check) {
      task<std::uint64_t> checking = count_wrong();
      r.wrong = co_await std::move(checking);
    }
    contenders_.clear();
    contenders_.push_back([this] { enqueue_ours(); });
    if (peer_)
      for (const auto which : {nccl_peer::channels::automatic, nccl_peer::channels::many})
        contenders_.push_back(
            [this, which] { peer_->all_reduce(which, in_.data(), out_.data(), count_, stream_.get()); });
    const int calls = options_.common.iterations != 0 ? options_.common.iterations
                      : bytes <= (1u << 20)           ? 200
                      : bytes <= (32u << 20)          ? 50
                                                      : 10;
    std::vector<std::unique_ptr<captured_graph>> graphs;
    if (options_.graph)
      for (const auto& enqueue : contenders_)
        graphs.push_back(std::make_unique<captured_graph>(stream_, [&] {
          for (int i = 0; i < calls; ++i) enqueue();
        }));
    std::vector<std::vector<double>> times(contenders_.size());
    for (int repeat = -1; repeat < options_.repeats; ++repeat)
      for (std::size_t c = 0; c < contenders_.size(); ++c) {
        const captured_graph* const graph = options_.graph ? graphs[c].get() : nullptr;
        task<double> one = time_once(c, graph, calls);
        const double us = co_await std::move(one);
        if (repeat >= 0) times[c].push_back(us);
      }
    r.ours_us = median(times[0]);
    if (peer_) r.peer_us = std::min(median(times[1]), median(times[2]));
    task<double> awaiting = time_awaited();
    r.awaited_us = co_await std::move(awaiting);
    co_return r;
  }

 private:
  void enqueue_ours() {
    error refused = comm_
                        .all_reduce(device_span{in_.data(), count_}, device_span{out_.data(), count_}, sum,
                                    on{stream_.get()})
                        .enqueue();
    if (refused) throw failure{std::move(refused)};
  }

  task<double> time_once(std::size_t contender, const captured_graph* graph, int calls) {
    stream_.synchronize();
    co_await comm_.barrier();
    const time_point begin = steady_now();
    if (graph)
      graph->launch(stream_);
    else
      for (int i = 0; i < calls; ++i) contenders_[contender]();
    stream_.synchronize();
    float us = static_cast<float>((steady_now() - begin).count()) / 1e3F / static_cast<float>(calls);
    co_await comm_.all_reduce(std::span{&us, 1});
    co_return static_cast<double>(us) / comm_.size();
  }

  task<double> time_awaited() {
    std::vector<double> times;
    for (int i = 0; i < 51; ++i) {
      const time_point begin = steady_now();
      co_await comm_.all_reduce(device_span{in_.data(), count_}, device_span{out_.data(), count_}, sum,
                                on{stream_.get()});
      times.push_back(static_cast<double>((steady_now() - begin).count()) / 1e3);
    }
    co_return median(std::move(times));
  }

  task<std::uint64_t> count_wrong() {
    std::vector<float> host(count_);
    for (std::size_t i = 0; i < count_; ++i) host[i] = value_of(comm_.rank(), i);
    in_.write(0, host.data(), count_, stream_);
    out_.fill_bytes(0xff, stream_);
    co_await comm_.all_reduce(device_span{in_.data(), count_}, device_span{out_.data(), count_}, sum,
                              on{stream_.get()});
    out_.read(0, host.data(), count_, stream_);
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      float expected = 0;
      for (rank_t r = 0; r < comm_.size(); ++r) expected += value_of(r, i);
      wrong += host[i] != expected;
    }
    float all = static_cast<float>(wrong);
    co_await comm_.all_reduce(std::span{&all, 1});
    co_return static_cast<std::uint64_t>(all);
  }

  communicator& comm_;
  const device_all_reduce_options& options_;
  const nccl_peer* peer_;
  std::size_t most_;
  std::size_t count_ = 0;
  work_stream stream_;
  device_floats in_;
  device_floats out_;
  std::vector<std::function<void()>> contenders_;
};

void print_head(const device_all_reduce_options& o, const communicator& comm, const std::string& peer) {
  if (o.common.format == report_format::json) return;
  std::printf("# all_reduce of f32, sum, on %d GPUs, %s; medians of %d interleaved repeats\n", comm.size(),
              o.graph ? "graph replay" : "stream", o.repeats);
  std::printf("# %12s %12s %10s %10s %10s %10s %8s %6s\n", "size (B)", "time (us)", "algbw", "busbw",
              "awaited", peer.empty() ? "" : peer.c_str(), peer.empty() ? "" : "ratio", "#wrong");
}

void print_row(const device_all_reduce_options& o, const row& r, rank_t ranks, const std::string& peer) {
  const double algbw = static_cast<double>(r.bytes) / r.ours_us / 1e3;
  const double busbw = algbw * 2 * (ranks - 1) / ranks;
  if (o.common.format == report_format::json) {
    nlohmann::ordered_json object;
    object["collective"] = "all_reduce";
    object["bytes"] = r.bytes;
    object["count"] = r.bytes / sizeof(float);
    object["dtype"] = "f32";
    object["op"] = "sum";
    object["device"] = "cuda";
    object["mode"] = o.graph ? "graph" : "stream";
    object["ranks"] = ranks;
    object["transport"] = "nvlink";
    object["algorithm"] = "auto";
    object["time_us"] = r.ours_us;
    object["awaited_us"] = r.awaited_us;
    object["algbw"] = algbw;
    object["busbw"] = busbw;
    object["wrong"] = o.common.check ? nlohmann::ordered_json(r.wrong) : nlohmann::ordered_json(nullptr);
    if (r.peer_us) {
      object["peer"] = peer;
      object["peer_time_us"] = *r.peer_us;
      object["ratio"] = *r.peer_us / r.ours_us;
    }
    std::printf("%s\n", object.dump().c_str());
  } else {
    std::printf("  %12llu %12.2f %10.2f %10.2f %10.2f", static_cast<unsigned long long>(r.bytes), r.ours_us,
                algbw, busbw, r.awaited_us);
    if (r.peer_us) std::printf(" %10.2f %8.2f", *r.peer_us, *r.peer_us / r.ours_us);
    std::printf(" %6s\n", o.common.check ? std::to_string(r.wrong).c_str() : "N/A");
  }
  std::fflush(stdout);
}

}  // namespace

task<int> bench_device_all_reduce(device_all_reduce_options options) {
  task<communicator> joining = communicator::join();
  communicator comm = co_await std::move(joining);
  co_await comm.use_gpu(comm.launched_as());
  const gpu_test::device current{comm.launched_as()};
  std::unique_ptr<nccl_peer> peer;
  if (options.versus_nccl) {
    task<std::unique_ptr<nccl_peer>> connecting = nccl_peer::connect(comm);
    peer = co_await std::move(connecting);
  }
  const std::string peer_name = peer ? peer->name() : std::string{};
  if (comm.rank() == 0) print_head(options, comm, peer_name);
  std::uint64_t wrong = 0;
  {
    meter measuring{comm, options, peer.get()};
    for (const std::uint64_t bytes : sizes_of(options.common)) {
      task<row> one = measuring.measure(bytes);
      const row r = co_await std::move(one);
      wrong += r.wrong;
      if (comm.rank() == 0) print_row(options, r, comm.size(), peer_name);
    }
  }
  peer.reset();
  co_await comm.barrier();
  co_return wrong == 0 ? 0 : 1;
}

}  // namespace chorale::bench
