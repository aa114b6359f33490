// Contenders side by side in one run: for every size and way (stream, graph), repeats in which each contender
// is measured after the other; medians of the slower rank's time are printed.
#pragma once

#include "../tests/gpu/device.hpp"
#include "../tests/gpu/rank_processes.hpp"
#include <chorale/kernels/device_group.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace chorale::gpu_bench {

using namespace chorale::gpu_test;
using chorale::cuda::device_group;
using clock_type = std::chrono::steady_clock;

struct setting {
  int rank = 0;
  int size = 2;
  int repeats = 7;
  bool tune = false;
  bool ring = false;
  bool ours_only = false;
  std::string collective;
  std::vector<int> groups;
};

/// Something that enqueues one operation on `count` floats in all.
struct contender {
  std::string name;
  std::function<void(const float*, float*, std::size_t)> enqueue;
};

inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

/// Times work on both ranks at once.
class stopwatch {
 public:
  stopwatch(hub_exchange& ranks, const work_stream& on) : ranks_{ranks}, on_{on} {}

  /// Microseconds per operation on the slower rank.
  template <class Work>
  double time(int operations, Work work) {
    on_.synchronize();
    ranks_.barrier().value();
    const auto start = clock_type::now();
    work();
    on_.synchronize();
    const double mine =
        std::chrono::duration<double, std::micro>(clock_type::now() - start).count() / operations;
    auto all = ranks_.all_gather_bytes(std::as_bytes(std::span{&mine, 1})).value();
    double worst = 0;
    for (std::size_t r = 0; r < all.size() / sizeof(double); ++r) {
      double theirs = 0;
      std::memcpy(&theirs, all.data() + r * sizeof theirs, sizeof theirs);
      worst = std::max(worst, theirs);
    }
    return worst;
  }

 private:
  hub_exchange& ranks_;
  const work_stream& on_;
};

inline int operations_for(std::size_t bytes) {
  return bytes <= (1u << 20) ? 200 : bytes <= (32u << 20) ? 50 : 10;
}

class comparison {
 public:
  comparison(const setting& s, hub_exchange& ranks, const work_stream& on, std::vector<contender> contenders)
      : s_{s}, watch_{ranks, on}, on_{on}, contenders_{std::move(contenders)} {}

  void run(const std::vector<std::size_t>& sizes) {
    const device_floats in{sizes.back() / 4}, out{sizes.back() / 4};
    in.fill_bytes(0x3c, on_);
    if (s_.rank == 0) {
      std::printf("%12s %-7s", "bytes", "way");
      for (const contender& c : contenders_) std::printf(" %22s", c.name.c_str());
      std::printf("\n");
    }
    print_submit_cost(in, out);
    for (std::size_t bytes : sizes) {
      print(bytes, "stream", stream_times(bytes, in, out));
      print(bytes, "graph", graph_times(bytes, in, out));
    }
  }

 private:
  /// What the calling thread pays for one launch; small sizes only, where the queue never fills.
  void print_submit_cost(const device_floats& in, const device_floats& out) {
    if (s_.rank == 0) std::printf("%12s %-7s", "8", "submit");
    for (const contender& c : contenders_) {
      std::vector<double> times;
      for (int r = 0; r < s_.repeats; ++r) {
        on_.synchronize();
        const auto start = clock_type::now();
        for (int i = 0; i < 200; ++i) c.enqueue(in.data(), out.data(), 2);
        times.push_back(std::chrono::duration<double, std::micro>(clock_type::now() - start).count() / 200);
      }
      if (s_.rank == 0) std::printf(" %10.2f us %10s", median(times), "");
    }
    if (s_.rank == 0) std::printf("\n");
  }
  std::vector<double> stream_times(std::size_t bytes, const device_floats& in, const device_floats& out) {
    const int n = operations_for(bytes);
    return medians([&](const contender& c) {
      return watch_.time(n, [&] {
        for (int i = 0; i < n; ++i) c.enqueue(in.data(), out.data(), bytes / 4);
      });
    });
  }
  std::vector<double> graph_times(std::size_t bytes, const device_floats& in, const device_floats& out) {
    const int n = std::min(operations_for(bytes), 100);
    std::vector<std::unique_ptr<captured_graph>> graphs;
    for (const contender& c : contenders_)
      graphs.push_back(std::make_unique<captured_graph>(on_, [&] {
        for (int i = 0; i < n; ++i) c.enqueue(in.data(), out.data(), bytes / 4);
      }));
    return medians([&](const contender& c) {
      const auto& graph = *graphs[static_cast<std::size_t>(&c - contenders_.data())];
      return watch_.time(n, [&] { graph.launch(on_); });
    });
  }
  template <class Measure>
  std::vector<double> medians(Measure measure) {
    std::vector<std::vector<double>> times(contenders_.size());
    for (const contender& c : contenders_) measure(c);  // warm-up
    for (int r = 0; r < s_.repeats; ++r)
      for (std::size_t c = 0; c < contenders_.size(); ++c) times[c].push_back(measure(contenders_[c]));
    std::vector<double> result;
    for (const auto& t : times) result.push_back(median(t));
    return result;
  }
  void print(std::size_t bytes, const char* way, const std::vector<double>& us) const {
    if (s_.rank != 0) return;
    std::printf("%12zu %-7s", bytes, way);
    for (double t : us) std::printf(" %10.2f us %5.0f GB/s", t, static_cast<double>(bytes) / t / 1e3);
    std::printf("\n");
    std::fflush(stdout);
  }
  const setting& s_;
  stopwatch watch_;
  const work_stream& on_;
  std::vector<contender> contenders_;
};

inline std::unique_ptr<device_group> make_group(const setting& s, hub_exchange& ranks, std::uint32_t ctas,
                                                std::uint32_t generation,
                                                std::optional<std::uint32_t> packet_bytes = {},
                                                std::size_t scratch_bytes = std::size_t{64} << 20) {
  chorale::cuda::device_group_config config;
  config.rank = s.rank;
  config.size = s.size;
  config.device = s.rank;
  config.generation = generation;
  config.max_ctas = ctas;
  config.packet_bytes = packet_bytes;
  config.scratch_bytes = scratch_bytes;
  return device_group::create(config, ranks).value();
}

inline std::vector<std::size_t> powers(std::size_t from, std::size_t to, std::size_t factor) {
  std::vector<std::size_t> sizes;
  for (std::size_t b = from; b <= to; b *= factor) sizes.push_back(b);
  return sizes;
}

}  // namespace chorale::gpu_bench
