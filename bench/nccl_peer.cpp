#include "nccl_peer.hpp"

#include <dlfcn.h>

namespace chorale::bench {
namespace {

constexpr int nccl_float32 = 7;
constexpr int nccl_sum = 0;

}  // namespace

template <class Function>
void nccl_peer::take(Function& slot, const char* name) {
  slot = reinterpret_cast<Function>(dlsym(library_, name));
  if (!slot) throw failure{error{errc::unsupported, std::string{"this libnccl.so.2 has no "} + name}};
}

nccl_peer::nccl_peer() {
  library_ = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library_)
    throw failure{error{errc::unsupported, std::string{"--vs nccl: "} + dlerror() +
                                               "; put the directory of libnccl.so.2 into LD_LIBRARY_PATH"}};
  take(get_version_, "ncclGetVersion");
  take(get_unique_id_, "ncclGetUniqueId");
  take(init_, "ncclCommInitRankConfig");
  take(all_reduce_, "ncclAllReduce");
  take(destroy_, "ncclCommDestroy");
  take(error_string_, "ncclGetErrorString");
}

nccl_peer::~nccl_peer() {
  if (default_comm_) destroy_(default_comm_);
  if (many_comm_) destroy_(many_comm_);
}

void nccl_peer::require(int code, const char* call) const {
  if (code != 0) throw failure{error{errc::gpu_error, std::string{call} + ": " + error_string_(code)}};
}

task<std::unique_ptr<nccl_peer>> nccl_peer::connect(communicator& comm) {
  std::unique_ptr<nccl_peer> peer{new nccl_peer};
  for (const bool many : {false, true}) {
    unique_id id{};
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span{id.bytes});
    if (comm.rank() == 0) {
      peer->require(peer->get_unique_id_(&id), "ncclGetUniqueId");
      for (rank_t r = 1; r < comm.size(); ++r) co_await comm.send(bytes, r);
    } else {
      co_await comm.recv(bytes, 0);
    }
    configuration settings;
    if (many) settings.min_ctas = settings.max_ctas = 32;
    void*& made = many ? peer->many_comm_ : peer->default_comm_;
    peer->require(peer->init_(&made, comm.size(), id, comm.rank(), &settings), "ncclCommInitRankConfig");
  }
  co_return peer;
}

void nccl_peer::all_reduce(channels which, const float* in, float* out, std::size_t count,
                           void* stream) const {
  void* const comm = which == channels::many ? many_comm_ : default_comm_;
  require(all_reduce_(in, out, count, nccl_float32, nccl_sum, comm, stream), "ncclAllReduce");
}

std::string nccl_peer::name() const {
  int version = 0;
  get_version_(&version);
  return "nccl " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace chorale::bench
