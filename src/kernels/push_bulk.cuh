// The ring's pusher by bulk copies: one thread moves a stripe through shared memory with the bulk engine.
//
// Tiles are loaded from the user's input into a ring of shared-memory stages, and stored from there into the
// slots of all peers. A stage is free again when its stores have read it; a chunk's flag is raised when the
// stores of its last tile have *completed*, after a proxy fence. On NVLink between GPUs of sm_90 a completed
// bulk store lies in the peer's memory, so the flag goes without a release (tests/gpu storms it; the group
// asks for both, as for lines); elsewhere a fence comes before it.
//
// The sizes below were found by measurement with 32 to 64 CTAs. Loads must run well ahead of stores, and few
// tiles may be incomplete: more of them only queue on the link, and flags and credits queue behind them.
#pragma once

#include <chorale/kernels/gpu_machine.cuh>
#include <chorale/kernels/plan.hpp>

namespace chorale::kernels {

inline constexpr std::uint32_t bulk_tile = 16384;  ///< bytes
inline constexpr std::uint32_t bulk_stages = 6;    ///< per half of a CTA
inline constexpr std::uint32_t bulk_reads = 2;     ///< stages being read by stores at any time
inline constexpr std::uint32_t bulk_lag = 3;       ///< tiles whose stores may be incomplete
static_assert(2 * bulk_tile * bulk_stages == ring_shared_bytes);

/// The stages: one mbarrier each, filled by bulk loads.
class bulk_stage_ring {
 public:
  __device__ bulk_stage_ring(std::byte* memory, std::uint64_t* barriers)
      : memory_{static_cast<std::uint32_t>(__cvta_generic_to_shared(memory))},
        barriers_{static_cast<std::uint32_t>(__cvta_generic_to_shared(barriers))} {
    for (std::uint32_t i = 0; i < bulk_stages; ++i)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers_ + 8 * i));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ void load(std::uint64_t tile, const void* from, std::uint32_t bytes) const {
    const std::uint32_t stage = static_cast<std::uint32_t>(tile % bulk_stages);
    const std::uint32_t barrier = barriers_ + 8 * stage;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
    if (bytes == 0) return;
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            memory_ + stage * bulk_tile),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
  }
  __device__ void await(std::uint64_t tile) const {
    const std::uint32_t barrier = barriers_ + 8 * static_cast<std::uint32_t>(tile % bulk_stages);
    const std::uint32_t phase = static_cast<std::uint32_t>(tile / bulk_stages) & 1;
    std::uint32_t done = 0;
    while (done == 0)
      asm volatile(
          "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
          : "=r"(done)
          : "r"(barrier), "r"(phase)
          : "memory");
  }
  __device__ void store(std::uint64_t tile, void* to, std::uint32_t bytes) const {
    const std::uint32_t stage = static_cast<std::uint32_t>(tile % bulk_stages);
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(memory_ + stage * bulk_tile), "r"(bytes)
                 : "memory");
  }
  __device__ static void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
  /// Between bulk accesses and this thread's ordinary ones, both ways: after an acquire and before bulk
  /// stores that rely on it, after complete bulk stores and before the release that tells of them.
  __device__ static void order_bulk_accesses() { asm volatile("fence.proxy.async;" ::: "memory"); }
  /// Until at most `Pending` of the latest commits still read their stages.
  template <int Pending>
  __device__ static void await_reads() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
  }
  /// Until at most `Pending` of the latest commits are incomplete.
  template <int Pending>
  __device__ static void await_stores() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
  }

 private:
  std::uint32_t memory_;
  std::uint32_t barriers_;
};

/// Walks a stripe tile by tile: tiles of a chunk lie side by side, chunks `stripes` apart.
class tile_walk {
 public:
  __device__ tile_walk(const all_reduce_args& args, std::uint32_t stripe, std::uint64_t sequence)
      : walk_{args, stripe, sequence} {}
  [[nodiscard]] __device__ bool more() const { return walk_.more(); }
  __device__ void step() {
    offset_ += bulk_tile;
    if (offset_ < chunk_bytes()) return;
    offset_ = 0;
    walk_.step();
  }
  [[nodiscard]] __device__ std::uint64_t sequence() const { return walk_.sequence(); }
  [[nodiscard]] __device__ std::uint32_t slot() const { return walk_.slot(); }
  [[nodiscard]] __device__ std::uint32_t offset() const { return offset_; }
  [[nodiscard]] __device__ std::uint64_t begin() const { return walk_.begin() * sizeof(float) + offset_; }
  /// Whole 16-byte units of the tile; the message's last few elements may be left for plain stores.
  [[nodiscard]] __device__ std::uint32_t bytes() const {
    const std::uint32_t rest = chunk_bytes() - offset_;
    return rest < bulk_tile ? rest / 16 * 16 : bulk_tile;
  }
  [[nodiscard]] __device__ std::uint32_t odd_elements() const {
    const std::uint32_t rest = chunk_bytes() - offset_;
    return rest < bulk_tile ? rest % 16 / 4 : 0;
  }
  [[nodiscard]] __device__ bool first_of_chunk() const { return offset_ == 0; }

 private:
  [[nodiscard]] __device__ std::uint32_t chunk_bytes() const {
    return walk_.length() * static_cast<std::uint32_t>(sizeof(float));
  }
  stripe_walk walk_;
  std::uint32_t offset_ = 0;
};

__device__ inline void push_tile(const bulk_stage_ring& stages, const all_reduce_args& args,
                                 std::uint32_t stripe, std::uint64_t index, const tile_walk& tile) {
  const group_view& group = args.group;
  for (std::uint32_t r = 0; r < group.size; ++r) {
    if (r == group.rank) continue;
    std::byte* to = ring_slot(group, r, group.rank, stripe, tile.slot()) + tile.offset();
    if (tile.bytes() > 0) stages.store(index, to, tile.bytes());
    const float* odd = args.in + (tile.begin() + tile.bytes()) / sizeof(float);
    for (std::uint32_t i = 0; i < tile.odd_elements(); ++i)
      reinterpret_cast<float*>(to + tile.bytes())[i] = odd[i];
  }
  stages.commit();
}

__device__ inline bool gpu_machine::push_stripe_in_bulk(operation<gpu_machine>& op,
                                                        const all_reduce_args& args, const cta_role& role,
                                                        std::uint32_t stripe, std::uint64_t sequence) {
  extern __shared__ __align__(128) std::byte stage_memory[];
  __shared__ __align__(8) std::uint64_t stage_barriers[2 * bulk_stages];
  if (thread() != role.first) return true;
  const std::uint32_t half = stripe % 2;
  const bulk_stage_ring stages{stage_memory + half * bulk_stages * bulk_tile,
                               stage_barriers + half * bulk_stages};
  const auto* in = reinterpret_cast<const std::byte*>(args.in);
  tile_walk loading{args, stripe, sequence};
  tile_walk storing{args, stripe, sequence};
  tile_walk complete{args, stripe, sequence};  // `pending` tiles behind `storing`
  std::uint64_t loaded = 0;
  std::uint64_t stored = 0;
  std::uint32_t pending = 0;
  const auto load_next = [&] {
    if (!loading.more()) return;
    stages.load(loaded, in + loading.begin(), loading.bytes());
    ++loaded;
    loading.step();
  };
  // The stores of all but the last `keep` tiles are complete: tells the peers of chunks that are.
  const auto publish_all_but = [&](std::uint32_t keep) {
    bool chunk_ended = false;
    for (; pending > keep; --pending) {
      complete.step();
      chunk_ended |= complete.first_of_chunk();
    }
    if (!chunk_ended) return;
    stages.order_bulk_accesses();
    if (args.bulk_stores_land == 0) fence_system();
    raise_flags(*this, args, stripe, complete.sequence());
  };
  for (std::uint32_t i = 0; i < bulk_stages - bulk_reads; ++i) load_next();
  bool ok = true;
  for (; storing.more(); storing.step()) {
    stages.await(stored);
    if (storing.first_of_chunk()) {
      // The peers may lack credit for chunks whose flags trail: nothing is held back while this waits.
      if (!has_credits(*this, args.group, stripe, storing.sequence())) {
        stages.await_stores<0>();
        publish_all_but(0);
      }
      ok = await_credits(*this, op, args.group, stripe, storing.sequence());
      if (!ok) break;
      stages.order_bulk_accesses();
    }
    push_tile(stages, args, stripe, stored, storing);
    ++stored;
    ++pending;
    stages.await_reads<bulk_reads - 1>();
    stages.await_stores<bulk_lag - 1>();
    publish_all_but(bulk_lag - 1);
    load_next();
  }
  stages.await_stores<0>();
  if (ok) publish_all_but(0);
  // Stages must not be given up while loads into them are under way.
  for (std::uint64_t tile = stored + (ok ? 0 : 1); tile < loaded; ++tile) stages.await(tile);
  return ok;
}

}  // namespace chorale::kernels
