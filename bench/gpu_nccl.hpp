// NCCL for the GPU benchmarks: nccl.h for its types, the library opened at run time; nothing of CUDA is
// linked.
#pragma once

#include "../tests/gpu/device.hpp"
#include "../tests/gpu/rank_processes.hpp"

#if __has_include(<nccl.h>)
#define CHORALE_BENCH_NCCL 1
// nccl.h wants only these names of the runtime; the library is opened at run time and nothing of CUDA is
// linked
#include <nccl.h>
#else
#define CHORALE_BENCH_NCCL 0
#endif

#if CHORALE_BENCH_NCCL
namespace chorale::gpu_bench {

using gpu_test::hub_exchange;

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
    take(all_gather_, "ncclAllGather");
    take(reduce_scatter_, "ncclReduceScatter");
    take(broadcast_, "ncclBroadcast");
    take(send_, "ncclSend");
    take(recv_, "ncclRecv");
    take(group_start_, "ncclGroupStart");
    take(group_end_, "ncclGroupEnd");
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
  void all_gather(const float* in, float* out, std::size_t share, ncclComm_t comm,
                  chorale::cuda::stream on) const {
    require(all_gather_(in, out, share, ncclFloat32, comm, reinterpret_cast<cudaStream_t>(on)),
            "ncclAllGather");
  }
  void reduce_scatter(const float* in, float* out, std::size_t share, ncclComm_t comm,
                      chorale::cuda::stream on) const {
    require(reduce_scatter_(in, out, share, ncclFloat32, ncclSum, comm, reinterpret_cast<cudaStream_t>(on)),
            "ncclReduceScatter");
  }
  void broadcast(const float* in, float* out, std::size_t count, ncclComm_t comm,
                 chorale::cuda::stream on) const {
    require(broadcast_(in, out, count, ncclFloat32, 0, comm, reinterpret_cast<cudaStream_t>(on)),
            "ncclBroadcast");
  }
  void all_to_all(const float* in, float* out, std::size_t share, int size, ncclComm_t comm,
                  chorale::cuda::stream on) const {
    group_start_();
    for (int r = 0; r < size; ++r) {
      const std::size_t at = static_cast<std::size_t>(r) * share;
      send_(in + at, share, ncclFloat32, r, comm, reinterpret_cast<cudaStream_t>(on));
      recv_(out + at, share, ncclFloat32, r, comm, reinterpret_cast<cudaStream_t>(on));
    }
    require(group_end_(), "ncclGroupEnd");
  }
  /// To the next rank, from the one before.
  void shift(const float* in, float* out, std::size_t count, int rank, int size, ncclComm_t comm,
             chorale::cuda::stream on) const {
    group_start_();
    send_(in, count, ncclFloat32, (rank + 1) % size, comm, reinterpret_cast<cudaStream_t>(on));
    recv_(out, count, ncclFloat32, (rank + size - 1) % size, comm, reinterpret_cast<cudaStream_t>(on));
    require(group_end_(), "ncclGroupEnd");
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
  decltype(&ncclAllGather) all_gather_ = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter_ = nullptr;
  decltype(&ncclBroadcast) broadcast_ = nullptr;
  decltype(&ncclSend) send_ = nullptr;
  decltype(&ncclRecv) recv_ = nullptr;
  decltype(&ncclGroupStart) group_start_ = nullptr;
  decltype(&ncclGroupEnd) group_end_ = nullptr;
};

}  // namespace chorale::gpu_bench
#endif
