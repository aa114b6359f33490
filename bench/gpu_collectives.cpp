#include "gpu_collectives.hpp"

#include "gpu_nccl.hpp"

namespace chorale::gpu_bench {
namespace {

using enqueue = std::function<void(const float*, float*, std::size_t)>;

/// Ours, enqueued one by one without a completion flag.
enqueue ours_of(const std::string& name, device_group& group, const work_stream& on) {
  const auto at = group.place();
  const auto n = static_cast<std::size_t>(at.size);
  const auto run = [&group, &on](const result<cuda::exchange_call>& call) {
    static_cast<void>(group.exchange(call, on.get(), cuda::notify::nobody).value());
  };
  if (name == "all_gather")
    return [=](const float* in, float* out, std::size_t count) {
      run(cuda::all_gather_call(at, in, out, count / n, dtype::f32));
    };
  if (name == "reduce_scatter")
    return [=](const float* in, float* out, std::size_t count) {
      run(cuda::reduce_scatter_call(at, in, out, count / n, {}));
    };
  if (name == "all_to_all")
    return [=](const float* in, float* out, std::size_t count) {
      run(cuda::all_to_all_call(at, in, out, count / n, dtype::f32));
    };
  if (name == "broadcast")
    return [=](const float* in, float* out, std::size_t count) {
      run(cuda::broadcast_call(at, in, at.rank == 0 ? const_cast<float*>(in) : out, count, dtype::f32, 0));
    };
  return [=](const float* in, float* out, std::size_t count) {
    const cuda::message shift[] = {
        cuda::send_to((at.rank + 1) % at.size, in, count, dtype::f32),
        cuda::receive_from((at.rank + at.size - 1) % at.size, out, count, dtype::f32)};
    run(cuda::messages_call(at, shift));
  };
}

#if CHORALE_BENCH_NCCL
enqueue theirs_of(const std::string& name, const setting& s, const nccl& peer, ncclComm_t comm,
                  const work_stream& on) {
  const auto n = static_cast<std::size_t>(s.size);
  if (name == "all_gather")
    return [&, comm, n](const float* in, float* out, std::size_t count) {
      peer.all_gather(in, out, count / n, comm, on.get());
    };
  if (name == "reduce_scatter")
    return [&, comm, n](const float* in, float* out, std::size_t count) {
      peer.reduce_scatter(in, out, count / n, comm, on.get());
    };
  if (name == "all_to_all")
    return [&, comm, n](const float* in, float* out, std::size_t count) {
      peer.all_to_all(in, out, count / n, s.size, comm, on.get());
    };
  if (name == "broadcast")
    return [&, comm](const float* in, float* out, std::size_t count) {
      peer.broadcast(in, s.rank == 0 ? const_cast<float*>(in) : out, count, comm, on.get());
    };
  return [&, comm](const float* in, float* out, std::size_t count) {
    peer.shift(in, out, count, s.rank, s.size, comm, on.get());
  };
}
#endif

/// Broadcasts and all_gathers by the ring, over grids and chunks.
void tune_copies(const setting& s, hub_exchange& ranks, const work_stream& on) {
  auto group = make_group(s, ranks, 64, 1);
  const auto at = group->place();
  const auto n = static_cast<std::size_t>(at.size);
  for (const bool gathers : {false, true}) {
    std::vector<contender> contenders;
    for (const auto& [ctas, chunk] :
         {std::pair{64u, 65536u}, {64u, 32768u}, {64u, 16384u}, {48u, 65536u}, {32u, 65536u}}) {
      kernels::group_limits limits = group->limits();
      limits.ctas = ctas;
      const auto run = [&group, &on, at, n, gathers, limits, chunk](const float* in, float* out,
                                                                    std::size_t count) {
        kernels::exchange_plan plan = kernels::plan_ring(count * sizeof(float), limits);
        plan.chunk = chunk;
        const auto call = gathers ? cuda::all_gather_call(at, in, out, count / n, dtype::f32)
                                  : cuda::broadcast_call(at, in, at.rank == 0 ? const_cast<float*>(in) : out,
                                                         count, dtype::f32, 0)
                                        .value();
        static_cast<void>(group->exchange_as(plan, call, on.get(), cuda::notify::nobody).value());
      };
      contenders.push_back({std::to_string(ctas) + " CTAs, " + std::to_string(chunk), run});
    }
    if (s.rank == 0) std::printf("# %s\n", gathers ? "all_gather" : "broadcast");
    comparison{s, ranks, on, contenders}.run({32u << 20, 128u << 20, 512u << 20});
  }
}

}  // namespace

void compare_collectives(const setting& s, hub_exchange& ranks, const work_stream& on) {
  if (s.collective == "tune") return tune_copies(s, ranks, on);
  auto group = make_group(s, ranks, 64, 1);
#if CHORALE_BENCH_NCCL
  const nccl peer;
  ncclComm_t comms[2] = {};
  if (peer && !s.ours_only) {
    comms[0] = peer.connect(ranks, s.rank, s.size, 0);
    comms[1] = peer.connect(ranks, s.rank, s.size, 32);
    if (s.rank == 0) std::printf("NCCL %d\n", peer.version());
  }
#endif
  for (const std::string name : {"all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv"}) {
    if (s.collective != "all" && s.collective != name) continue;
    std::vector<contender> contenders{{"chorale", ours_of(name, *group, on)}};
#if CHORALE_BENCH_NCCL
    for (int k = 0; k < 2; ++k)
      if (comms[k] != nullptr)
        contenders.push_back({k == 0 ? "NCCL" : "NCCL, 32 CTAs", theirs_of(name, s, peer, comms[k], on)});
#endif
    if (s.rank == 0) std::printf("# %s\n", name.c_str());
    comparison{s, ranks, on, contenders}.run(
        {8, 4096, 32768, 262'144, 2u << 20, 16u << 20, 128u << 20, 512u << 20});
  }
#if CHORALE_BENCH_NCCL
  for (ncclComm_t comm : comms)
    if (comm != nullptr) peer.destroy(comm);
#endif
}

}  // namespace chorale::gpu_bench
