#include "nccl_peer.hpp"

#include <dlfcn.h>

namespace chorale::bench {
namespace {

int nccl_type(dtype type) {
  switch (type) {
    case dtype::none:  // a barrier's
    case dtype::i8:
      return 0;
    case dtype::u8:
      return 1;
    case dtype::i32:
      return 2;
    case dtype::u32:
      return 3;
    case dtype::i64:
      return 4;
    case dtype::u64:
      return 5;
    case dtype::f16:
      return 6;
    case dtype::f32:
      return 7;
    case dtype::f64:
      return 8;
    case dtype::bf16:
      return 9;
    case dtype::f8e4m3:
      return 10;
    case dtype::f8e5m2:
      return 11;
  }
  return 0;
}
int nccl_operation(reduction op) {
  switch (op) {
    case reduction::sum:
    case reduction::none:
      return 0;
    case reduction::prod:
      return 1;
    case reduction::max:
      return 2;
    case reduction::min:
      return 3;
    case reduction::avg:
      return 4;
    default:
      throw failure{error{errc::unsupported, "--vs nccl: NCCL has no " + std::string{name_of(op)} +
                                                 "; compare sum, prod, min, max or avg"}};
  }
}

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
  take(reduce_, "ncclReduce");
  take(broadcast_, "ncclBroadcast");
  take(all_gather_, "ncclAllGather");
  take(reduce_scatter_, "ncclReduceScatter");
  take(send_, "ncclSend");
  take(recv_, "ncclRecv");
  take(group_start_, "ncclGroupStart");
  take(group_end_, "ncclGroupEnd");
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

/// What NCCL has no call for, as groups of sends and receives.
void nccl_peer::group(const call& c, rank_t rank, rank_t ranks, void* comm, void* stream) const {
  const int type = nccl_type(c.type);
  const bool all = c.kind == collective_kind::all_to_all;
  const std::uint64_t count = all ? c.count / static_cast<std::uint64_t>(ranks) : c.count;
  const std::uint64_t share = count * size_of(c.type);
  const bool at_root = rank == c.root;
  const bool gathers = c.kind == collective_kind::gather;
  const bool scatters = c.kind == collective_kind::scatter;
  for (rank_t r = 0; r < ranks; ++r) {
    const std::uint64_t at = static_cast<std::uint64_t>(r) * share;
    if (all || (scatters && at_root)) require(send_(c.in + at, count, type, r, comm, stream), "ncclSend");
    if (all || (gathers && at_root)) require(recv_(c.out + at, count, type, r, comm, stream), "ncclRecv");
  }
  if (gathers) require(send_(c.in, count, type, c.root, comm, stream), "ncclSend");
  if (scatters) require(recv_(c.out, count, type, c.root, comm, stream), "ncclRecv");
  if (c.kind != collective_kind::message) return;
  if (c.sending)
    require(send_(c.in, count, type, c.peer, comm, stream), "ncclSend");
  else
    require(recv_(c.out, count, type, c.source, comm, stream), "ncclRecv");
}

void nccl_peer::enqueue(channels which, std::span<const described_call> calls, rank_t rank, rank_t ranks,
                        void* stream) const {
  void* const comm = which == channels::many ? many_comm_ : default_comm_;
  const call& c = calls.front().what;
  const int type = nccl_type(c.type);
  const int op = nccl_operation(c.op);
  switch (c.kind) {
    case collective_kind::all_reduce:
      return require(all_reduce_(c.in, c.out, c.count, type, op, comm, stream), "ncclAllReduce");
    case collective_kind::reduce:
      return require(reduce_(c.in, c.out, c.count, type, op, c.root, comm, stream), "ncclReduce");
    case collective_kind::broadcast:
      return require(broadcast_(c.in, c.out, c.count, type, c.root, comm, stream), "ncclBroadcast");
    case collective_kind::all_gather:
      return require(all_gather_(c.in, c.out, c.count, type, comm, stream), "ncclAllGather");
    case collective_kind::reduce_scatter:
      return require(reduce_scatter_(c.in, c.out, c.count, type, op, comm, stream), "ncclReduceScatter");
    case collective_kind::all_to_all:
    case collective_kind::gather:
    case collective_kind::scatter:
    case collective_kind::message:
      require(group_start_(), "ncclGroupStart");
      for (const described_call& each : calls) group(each.what, rank, ranks, comm, stream);
      return require(group_end_(), "ncclGroupEnd");
    default:
      throw failure{error{errc::unsupported,
                          "--vs nccl: NCCL has no " + std::string{name_of(c.kind)} + "; leave --vs out"}};
  }
}

std::string nccl_peer::name() const {
  int version = 0;
  get_version_(&version);
  return "nccl " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace chorale::bench
