// NCCL as a peer in the same process, opened at run time; no header of it is needed.
//
// The few declarations follow NCCL's public ABI, which is append-only: a configuration that ends with an
// older version's last field is read as that version's.
#pragma once

#include <chorale/chorale.hpp>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace chorale::bench {

class nccl_peer {
 public:
  struct unique_id {
    char bytes[128];
  };

  /// Collective over `comm`. Throws errc::unsupported where there is no libnccl.so.2.
  [[nodiscard]] static task<std::unique_ptr<nccl_peer>> connect(communicator& comm);
  nccl_peer(const nccl_peer&) = delete;
  nccl_peer& operator=(const nccl_peer&) = delete;
  ~nccl_peer();

  /// NCCL's own choice of channels, and the same with 32 asked for.
  enum class channels { automatic, many };
  /// Enqueues on a CUDA stream what `calls` are: one collective, or the sends and receives of a group. Throws
  /// errc::unsupported for types, operations and collectives that NCCL does not have.
  void enqueue(channels which, std::span<const described_call> calls, rank_t rank, rank_t ranks,
               void* stream) const;
  [[nodiscard]] std::string name() const;

 private:
  struct configuration {  // ncclConfig_t up to version 2.18
    std::size_t size = sizeof(configuration);
    unsigned magic = 0xcafebeef;
    unsigned version = 21800;
    int blocking = INT_MIN;
    int cluster_size = INT_MIN;
    int min_ctas = INT_MIN;
    int max_ctas = INT_MIN;
    const char* net_name = nullptr;
    int split_share = INT_MIN;
  };
  nccl_peer();
  template <class Function>
  void take(Function& slot, const char* name);
  void require(int code, const char* call) const;

  void* library_ = nullptr;
  // Arguments: buffers, count, then type, operation, root where there are any, communicator, stream.
  using copying = int (*)(const void*, void*, std::size_t, int, void*, void*);
  using reducing = int (*)(const void*, void*, std::size_t, int, int, void*, void*);
  using rooted_copying = reducing;
  using rooted_reducing = int (*)(const void*, void*, std::size_t, int, int, int, void*, void*);
  void group(const call& c, rank_t rank, rank_t ranks, void* comm, void* stream) const;

  int (*get_version_)(int*) = nullptr;
  int (*get_unique_id_)(unique_id*) = nullptr;
  int (*init_)(void**, int, unique_id, int, configuration*) = nullptr;
  int (*destroy_)(void*) = nullptr;
  const char* (*error_string_)(int) = nullptr;
  reducing all_reduce_ = nullptr;
  rooted_reducing reduce_ = nullptr;
  rooted_copying broadcast_ = nullptr;
  copying all_gather_ = nullptr;
  reducing reduce_scatter_ = nullptr;
  int (*send_)(const void*, std::size_t, int, int, void*, void*) = nullptr;
  int (*recv_)(void*, std::size_t, int, int, void*, void*) = nullptr;
  int (*group_start_)() = nullptr;
  int (*group_end_)() = nullptr;
  void* default_comm_ = nullptr;
  void* many_comm_ = nullptr;
};

}  // namespace chorale::bench
