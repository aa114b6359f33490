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

/// Walks what a stripe pushes tile by tile: tiles of a chunk lie side by side.
class tile_walk {
 public:
  __device__ tile_walk(const exchange_args& args, const cta_shared& shared, const cta_role& role)
      : walk_{args, shared, role, 0, parts_of(args)} {}
  [[nodiscard]] __device__ bool more() const { return walk_.more(); }
  __device__ void step() {
    offset_ += bulk_tile;
    if (offset_ < walk_.bytes()) return;
    offset_ = 0;
    walk_.step();
  }
  [[nodiscard]] __device__ const chunk_walk<false>& chunk() const { return walk_; }
  [[nodiscard]] __device__ std::uint32_t offset() const { return offset_; }
  [[nodiscard]] __device__ const std::byte* data() const { return walk_.data() + offset_; }
  /// Whole 16-byte units of the tile; the last few bytes of an extent may be left for plain stores.
  [[nodiscard]] __device__ std::uint32_t bytes() const {
    return rest() < bulk_tile ? rest() / 16 * 16 : bulk_tile;
  }
  [[nodiscard]] __device__ std::uint32_t odd_bytes() const { return rest() < bulk_tile ? rest() % 16 : 0; }
  [[nodiscard]] __device__ bool is_first_of_chunk() const { return offset_ == 0; }
  [[nodiscard]] __device__ bool is_last_of_chunk() const { return rest() <= bulk_tile; }

 private:
  [[nodiscard]] __device__ std::uint32_t rest() const { return walk_.bytes() - offset_; }
  chunk_walk<false> walk_;
  std::uint32_t offset_ = 0;
};

/// The bulk pusher of a stripe: one thread. Tiles are loaded, stored, and complete, in this order and some
/// tiles apart.
template <class M>
class bulk_pusher {
 public:
  __device__ bulk_pusher(M& m, operation<M>& op, const exchange_args& args, const cta_role& role,
                         const bulk_stage_ring& stages)
      : m_{m},
        op_{op},
        args_{args},
        role_{role},
        stages_{stages},
        loading_{args, m.shared(), role},
        storing_{loading_},
        complete_{loading_} {}

  __device__ bool run() {
    bool ok = true;
    for (; ok && storing_.more(); storing_.step()) {
      load_ahead();
      if (loaded_ == stored_) ok = await_fold();
      if (!ok) break;
      stages_.await(stored_);
      ++awaited_;
      ok = !storing_.is_first_of_chunk() || await_credit();
      if (!ok) break;
      push_tile();
      bulk_stage_ring::await_reads<bulk_reads - 1>();
      bulk_stage_ring::await_stores<bulk_lag - 1>();
      publish_all_but(bulk_lag - 1);
    }
    bulk_stage_ring::await_stores<0>();
    if (ok) publish_all_but(0);
    // Stages must not be given up while loads into them are under way.
    for (std::uint64_t tile = awaited_; tile < loaded_; ++tile) stages_.await(tile);
    return ok;
  }

 private:
  __device__ void load_ahead() {
    while (loaded_ < stored_ + bulk_stages - bulk_reads && loading_.more() &&
           is_made(m_, role_, loading_.chunk())) {
      if (loading_.chunk().part() != 0) stages_.order_bulk_accesses();
      stages_.load(loaded_, loading_.data(), loading_.bytes());
      ++loaded_;
      loading_.step();
    }
  }
  /// The fold has not got as far as this. Peers may need what trails to get on: nothing is held back.
  __device__ bool await_fold() {
    publish_all();
    if (!op_.wait([&] { return is_made(m_, role_, loading_.chunk()); })) return false;
    load_ahead();
    return true;
  }
  /// The peer may lack credit for chunks whose flags trail: nothing is held back while this waits.
  __device__ bool await_credit() {
    const chunk_walk<false>& c = storing_.chunk();
    if (!has_room(m_, args_, c.peer(), role_.stripe, c.sequence())) publish_all();
    if (!await_room(m_, op_, args_, c.peer(), role_.stripe, c.sequence())) return false;
    stages_.order_bulk_accesses();
    slot_ = ring_slot(args_, c.peer(), args_.group.rank, role_.stripe, c.slot());
    return true;
  }
  /// Stores the stage into the peer's slot.
  __device__ void push_tile() {
    std::byte* to = slot_ + storing_.offset();
    const std::uint32_t bytes = storing_.bytes();
    if (bytes > 0) stages_.store(stored_, to, bytes);
    for (std::uint32_t i = 0; i < storing_.odd_bytes(); ++i) to[bytes + i] = storing_.data()[bytes + i];
    stages_.commit();
    ++stored_;
    ++pending_;
  }
  __device__ void publish_all() {
    bulk_stage_ring::await_stores<0>();
    publish_all_but(0);
  }
  /// The stores of all but the last `keep` tiles are complete: tells the peers of chunks that are.
  __device__ void publish_all_but(std::uint32_t keep) {
    for (; pending_ > keep; --pending_) {
      if (complete_.is_last_of_chunk()) {
        stages_.order_bulk_accesses();
        if (args_.bulk_stores_land == 0 || complete_.odd_bytes() != 0) m_.fence_system();
        publish(m_, args_, role_, complete_.chunk());
      }
      complete_.step();
    }
  }

  M& m_;
  operation<M>& op_;
  const exchange_args& args_;
  const cta_role& role_;
  const bulk_stage_ring& stages_;
  tile_walk loading_;
  tile_walk storing_;
  tile_walk complete_;         ///< `pending_` tiles behind `storing_`
  std::byte* slot_ = nullptr;  ///< of the chunk being stored
  std::uint64_t loaded_ = 0;
  std::uint64_t stored_ = 0;
  std::uint64_t awaited_ = 0;
  std::uint32_t pending_ = 0;
};

template <class M>
__device__ bool gpu_machine::push_stripe_in_bulk(M& m, operation<M>& op, const exchange_args& args,
                                                 const cta_role& role) {
  extern __shared__ __align__(128) std::byte stage_memory[];
  __shared__ __align__(8) std::uint64_t stage_barriers[2 * bulk_stages];
  if (m.thread() != role.first) return true;
  const bulk_stage_ring stages{stage_memory + role.half * bulk_stages * bulk_tile,
                               stage_barriers + role.half * bulk_stages};
  return bulk_pusher<M>{m, op, args, role, stages}.run();
}

}  // namespace chorale::kernels
