// GPU all-reduce beside NCCL in one run: one process per GPU, both libraries in each, measurements
// interleaved.
//
//   gpu_bench [--ours] [--ring | --tune | --collective NAME] [--repeats N]
//
// For every size and way (stream, graph) it takes N repeats, in each one measurement of every contender after
// the other, and prints the median of the slower rank's time. Contenders: chorale; NCCL by default; NCCL with
// 32 CTAs asked for. Plain buffers throughout: nothing is registered with NCCL, nothing is a window here.
// --collective compares all_gather, reduce_scatter, all_to_all, broadcast, sendrecv, or all of them.
// --ring compares large messages over grids and scratch sizes; --tune prints grids and thresholds of ours.
#include "gpu_collectives.hpp"
#include "gpu_comparison.hpp"
#include "gpu_nccl.hpp"

namespace ck = chorale::kernels;
using namespace chorale::gpu_bench;

namespace {

contender ours(std::string name, device_group& group, const work_stream& on, chorale::cuda::notify whom) {
  return {std::move(name), [&group, &on, whom](const float* in, float* out, std::size_t count) {
            static_cast<void>(group.all_reduce(in, out, count, on.get(), whom).value());
          }};
}
contender planned(std::string name, device_group& group, const work_stream& on,
                  std::function<ck::exchange_plan(std::size_t)> plan) {
  return {
      std::move(name), [&group, &on, plan](const float* in, float* out, std::size_t count) {
        static_cast<void>(group
                              .exchange_as(plan(count),
                                           chorale::cuda::all_reduce_call(group.place(), in, out, count, {}),
                                           on.get(), chorale::cuda::notify::nobody)
                              .value());
      }};
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
      ck::exchange_plan p = ck::plan_lines(count * 4, limits);
      p.lines_ahead = ahead;
      return p;
    };
  };
  const auto packets_with = [](std::uint32_t ctas, std::uint32_t workers) {
    return [ctas, workers](std::size_t count) {
      ck::exchange_plan p;
      p.ctas = std::clamp(ck::divide_up((count + 1) / 2, workers), 1u, ctas);
      p.threads = std::clamp(ck::divide_up((count + 1) / 2, 32) * 32, 32u, workers) + ck::signature_threads;
      return p;
    };
  };
  const auto ring_with = [&](device_group& g, std::uint32_t ctas, std::uint32_t chunk) {
    ck::group_limits limits = g.limits();
    limits.ctas = ctas;
    return [limits, chunk](std::size_t count) {
      ck::exchange_plan p = ck::plan_ring(count * 4, limits);
      if (chunk != 0) p.chunk = std::min(chunk, limits.ring_chunk);
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
  if (!s.collective.empty()) {
    compare_collectives(s, ranks, on);
    ranks.barrier().value();
    return 0;
  }
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
    if (a == "--collective") {
      s.collective = argv[++i];
      passed_on.emplace_back(argv[i]);
    }
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
