// GPU all-reduce beside NCCL in one run: one process per GPU, both libraries in each, measurements
// interleaved.
//
//   gpu_bench [--ours] [--ring | --tune] [--repeats N]
//
// For every size and way (stream, graph) it takes N repeats, in each one measurement of every contender after
// the other, and prints the median of the slower rank's time. Contenders: chorale; NCCL by default; NCCL with
// 32 CTAs asked for. Plain buffers throughout: nothing is registered with NCCL, nothing is a window here.
// --ring compares large messages over grids and scratch sizes; --tune prints grids and thresholds of ours.
#include "../tests/gpu/device.hpp"
#include "../tests/gpu/rank_processes.hpp"
#include <chorale/kernels/device_group.hpp>

#if __has_include(<nccl.h>)
#define CHORALE_BENCH_NCCL 1
// nccl.h wants only these names of the runtime; the library is opened at run time and nothing of CUDA is
// linked
#include <nccl.h>
#else
#define CHORALE_BENCH_NCCL 0
#endif

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>

namespace ck = chorale::kernels;
using namespace chorale::gpu_test;
using chorale::cuda::device_group;
using clock_type = std::chrono::steady_clock;

namespace {

struct setting {
  int rank = 0;
  int size = 2;
  int repeats = 7;
  bool tune = false;
  bool ring = false;
  bool ours_only = false;
  std::vector<int> groups;
};

/// Something that enqueues one all-reduce of `count` floats.
struct contender {
  std::string name;
  std::function<void(const float*, float*, std::size_t)> enqueue;
};

#if CHORALE_BENCH_NCCL
/// NCCL through dlopen.
class nccl {
 public:
  nccl() {
    library_ = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    take(get_id_, "ncclGetUniqueId");
    take(init_, "ncclCommInitRankConfig");
    take(all_reduce_, "ncclAllReduce");
    take(destroy_, "ncclCommDestroy");
    take(version_, "ncclGetVersion");
  }
  [[nodiscard]] explicit operator bool() const { return library_ != nullptr; }
  [[nodiscard]] int version() const {
    int v = 0;
    version_(&v);
    return v;
  }
  /// `ctas` 0: NCCL's own choice.
  ncclComm_t connect(hub_exchange& ranks, int rank, int size, int ctas) const {
    ncclUniqueId id{};
    if (rank == 0) require(get_id_(&id), "ncclGetUniqueId");
    auto all = ranks.all_gather_bytes(std::as_bytes(std::span{&id, 1})).value();
    std::memcpy(&id, all.data(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (ctas != 0) config.minCTAs = config.maxCTAs = ctas;
    ncclComm_t comm = nullptr;
    require(init_(&comm, size, id, rank, &config), "ncclCommInitRankConfig");
    return comm;
  }
  void all_reduce(const float* in, float* out, std::size_t count, ncclComm_t comm,
                  chorale::cuda::stream on) const {
    require(all_reduce_(in, out, count, ncclFloat32, ncclSum, comm, reinterpret_cast<cudaStream_t>(on)),
            "ncclAllReduce");
  }
  void destroy(ncclComm_t comm) const { destroy_(comm); }

 private:
  template <class Function>
  void take(Function& slot, const char* name) {
    slot = reinterpret_cast<Function>(dlsym(library_, name));
  }
  static void require(ncclResult_t r, const char* call) {
    if (r != ncclSuccess)
      throw chorale::failure{
          chorale::error{chorale::errc::gpu_error,
                         std::string{call} + " failed with " + std::to_string(static_cast<int>(r))}};
  }
  void* library_ = nullptr;
  decltype(&ncclGetUniqueId) get_id_ = nullptr;
  decltype(&ncclCommInitRankConfig) init_ = nullptr;
  decltype(&ncclAllReduce) all_reduce_ = nullptr;
  decltype(&ncclCommDestroy) destroy_ = nullptr;
  decltype(&ncclGetVersion) version_ = nullptr;
};
#endif

double median(std::vector<double> v) {
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

int operations_for(std::size_t bytes) { return bytes <= (1u << 20) ? 200 : bytes <= (32u << 20) ? 50 : 10; }

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

std::unique_ptr<device_group> make_group(const setting& s, hub_exchange& ranks, std::uint32_t ctas,
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

contender ours(std::string name, device_group& group, const work_stream& on, chorale::cuda::notify whom) {
  return {std::move(name), [&group, &on, whom](const float* in, float* out, std::size_t count) {
            static_cast<void>(group.all_reduce(in, out, count, on.get(), whom).value());
          }};
}
contender planned(std::string name, device_group& group, const work_stream& on,
                  std::function<ck::all_reduce_plan(std::size_t)> plan) {
  return {std::move(name), [&group, &on, plan](const float* in, float* out, std::size_t count) {
            static_cast<void>(
                group.all_reduce_as(plan(count), in, out, count, on.get(), chorale::cuda::notify::nobody)
                    .value());
          }};
}

std::vector<std::size_t> powers(std::size_t from, std::size_t to, std::size_t factor) {
  std::vector<std::size_t> sizes;
  for (std::size_t b = from; b <= to; b *= factor) sizes.push_back(b);
  return sizes;
}

void tune(const setting& s, hub_exchange& ranks, const work_stream& on) {
  auto normal = make_group(s, ranks, 32, 1);
  auto wide = make_group(s, ranks, 64, 2);
  auto half = make_group(s, ranks, 24, 3);
  auto roomy = make_group(s, ranks, 32, 4, 65536);
  const auto lines_with = [&](device_group& g, std::uint32_t ctas, std::uint32_t ahead) {
    ck::group_limits limits = g.limits();
    limits.ctas = ctas;
    return [limits, ahead](std::size_t count) {
      ck::all_reduce_plan p = ck::plan_lines(count, limits);
      p.lines_ahead = ahead;
      return p;
    };
  };
  const auto packets_with = [](std::uint32_t ctas, std::uint32_t workers) {
    return [ctas, workers](std::size_t count) {
      ck::all_reduce_plan p;
      p.ctas = std::clamp(ck::divide_up((count + 1) / 2, workers), 1u, ctas);
      p.threads = std::clamp(ck::divide_up((count + 1) / 2, 32) * 32, 32u, workers) + ck::signature_threads;
      return p;
    };
  };
  const auto ring_with = [&](device_group& g, std::uint32_t ctas, std::uint32_t chunk) {
    ck::group_limits limits = g.limits();
    limits.ctas = ctas;
    return [limits, chunk](std::size_t count) {
      ck::all_reduce_plan p = ck::plan_ring(count, limits);
      if (chunk != 0) p.chunk = std::min(chunk, limits.ring_chunk) / 4;
      return p;
    };
  };
  const auto limit = normal->limits();
  const std::vector<contender> packets{planned("packets 1 x 992", *roomy, on, packets_with(1, 992)),
                                       planned("packets 1 x 512", *roomy, on, packets_with(1, 512)),
                                       planned("packets 4 x 992", *roomy, on, packets_with(4, 992)),
                                       planned("packets 32 x 512", *roomy, on, packets_with(32, 512)),
                                       planned("packets 32 x 256", *roomy, on, packets_with(32, 256)),
                                       planned("lines 32 x1", *normal, on, lines_with(*normal, 32, 1))};
  comparison{s, ranks, on, packets}.run({8, 2048, 4096, 8192, 16384, 32768, 65536});
  const std::vector<contender> lines{planned("lines 32 x1", *normal, on, lines_with(*normal, 32, 1)),
                                     planned("lines 32 x2", *normal, on, lines_with(*normal, 32, 2)),
                                     planned("lines 32 x4", *normal, on, lines_with(*normal, 32, 4)),
                                     planned("lines 64 x2", *wide, on, lines_with(*wide, 64, 2)),
                                     planned("lines 64 x4", *wide, on, lines_with(*wide, 64, 4))};
  comparison{s, ranks, on, lines}.run(powers(16384, limit.ll128_bytes, 4));
  const std::vector<contender> ring{planned("ring 32", *normal, on, ring_with(*normal, 32, 0)),
                                    planned("ring 32, 64 KiB", *normal, on, ring_with(*normal, 32, 65536)),
                                    planned("ring 16", *normal, on, ring_with(*normal, 16, 0)),
                                    planned("ring 24", *half, on, ring_with(*half, 24, 0)),
                                    planned("ring 64", *wide, on, ring_with(*wide, 64, 0))};
  comparison{s, ranks, on, ring}.run(powers(8u << 20, 1u << 30, 4));
}

int run_rank(const setting& s) {
  const device here{s.rank};
  const work_stream on;
  hub_exchange ranks{s.groups.at(0), s.rank};
  if (s.tune) {
    tune(s, ranks, on);
    ranks.barrier().value();
    return 0;
  }
  std::vector<std::unique_ptr<device_group>> groups;
  std::vector<contender> contenders;
  const auto add = [&](std::uint32_t ctas, std::size_t scratch_mib, chorale::cuda::notify whom) {
    groups.push_back(
        make_group(s, ranks, ctas, static_cast<std::uint32_t>(groups.size() + 1), {}, scratch_mib << 20));
    std::string name = std::to_string(ctas) + " CTAs, " + std::to_string(scratch_mib) + " MiB";
    if (whom == chorale::cuda::notify::host) name += ", awaited";
    contenders.push_back(ours(std::move(name), *groups.back(), on, whom));
  };
  add(64, 64, chorale::cuda::notify::nobody);
  if (s.ring) {
    add(48, 64, chorale::cuda::notify::nobody);
    add(64, 96, chorale::cuda::notify::nobody);
  } else {
    add(64, 64, chorale::cuda::notify::host);
  }
  add(32, 64, chorale::cuda::notify::nobody);
#if CHORALE_BENCH_NCCL
  const nccl peer;
  ncclComm_t comms[2] = {};
  if (peer && !s.ours_only) {
    comms[0] = peer.connect(ranks, s.rank, s.size, 0);
    comms[1] = peer.connect(ranks, s.rank, s.size, 32);
    if (s.rank == 0) std::printf("NCCL %d\n", peer.version());
    for (int k = 0; k < 2; ++k)
      contenders.push_back({k == 0 ? "NCCL" : "NCCL, 32 CTAs",
                            [&peer, comm = comms[k], &on](const float* in, float* out, std::size_t count) {
                              peer.all_reduce(in, out, count, comm, on.get());
                            }});
  } else if (s.rank == 0) {
    std::printf("libnccl.so.2 is not here or not asked for: ours alone\n");
  }
#else
  if (s.rank == 0) std::printf("built without nccl.h: ours alone\n");
#endif
  const std::vector<std::size_t> sizes =
      s.ring ? powers(32u << 20, 1u << 30, 2)
             : std::vector<std::size_t>{8, 4096, 32768, 262144, 2u << 20, 16u << 20, 128u << 20, 1u << 30};
  comparison{s, ranks, on, contenders}.run(sizes);
  ranks.barrier().value();
#if CHORALE_BENCH_NCCL
  for (ncclComm_t comm : comms)
    if (comm != nullptr) peer.destroy(comm);
#endif
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  setting s;
  bool is_rank = false;
  std::vector<std::string> passed_on;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--rank") {
      is_rank = true;
      s.rank = std::atoi(argv[++i]);
      continue;
    }
    if (a == "--group") {
      s.groups.push_back(std::atoi(argv[++i]));
      continue;
    }
    passed_on.push_back(a);
    if (a == "--tune") s.tune = true;
    if (a == "--ring") s.ring = true;
    if (a == "--ours") s.ours_only = true;
    if (a == "--repeats") {
      s.repeats = std::atoi(argv[++i]);
      passed_on.emplace_back(argv[i]);
    }
  }
  try {
    if (is_rank) return run_rank(s);
    auto loaded = chorale::cuda::cuda_driver::load();
    int devices = 0;
    if (loaded) (*loaded)->device_get_count(&devices);
    if (devices < s.size) {
      std::printf("skipped: needs %d GPUs, this machine shows %d\n", s.size, devices);
      return 77;
    }
    hub ends{s.size};
    std::vector<pid_t> processes;
    for (int r = 0; r < s.size; ++r) {
      std::vector<std::string> arguments = passed_on;
      for (const std::string& a :
           {std::string{"--rank"}, std::to_string(r), std::string{"--group"}, std::to_string(ends.end(r))})
        arguments.push_back(a);
      processes.push_back(start_rank(arguments, {ends.end(0), ends.end(1)}, {ends.end(r)}));
    }
    for (int r = 0; r < s.size; ++r) ends.release(r);
    int worst = 0;
    for (pid_t p : processes) worst = std::max(worst, wait_for(p));
    return worst;
  } catch (const std::exception& e) {
    std::printf("rank %d: %s\n", s.rank, e.what());
    return 1;
  }
}
