// The kernels' machine on CPU threads: the same protocol code, run by as many threads as a grid has.
//
// 128-bit packets become two 64-bit atomics: each half carries its flag, so a torn packet is never taken for
// a whole one, which is all that the protocol asks. `host_group` is the memory of some ranks in one process;
// `launch` runs one operation on one rank and returns when its kernel has ended.
#pragma once

#include "fake_memory.hpp"
#include <chorale/kernels/exchange_ring.hpp>
#include <chorale/kernels/launch_arguments.hpp>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace chorale::kernels {

/// What the threads of one CTA share.
struct host_cta {
  /// The whole CTA; the ring's pushers and reducers of either half; the reducers of both.
  explicit host_cta(std::uint32_t threads)
      : meetings{{threads},       {part(threads)}, {part(threads)},
                 {part(threads)}, {part(threads)}, {2 * part(threads)}} {}
  static std::uint32_t part(std::uint32_t threads) { return threads < 4 ? 1 : threads / 4; }
  struct meeting {
    meeting(std::uint32_t threads) : barrier{static_cast<std::ptrdiff_t>(threads)} {}
    std::barrier<> barrier;
    std::atomic<std::uint32_t> any[2] = {0, 0};
  };
  meeting meetings[6];
  cta_shared shared{};
};

class host_machine {
 public:
  static constexpr bool has_bulk_copies = false;
  static constexpr std::uint32_t ranks = 0;
  /// Pushing out of this memory takes long: what must wait for it shows when it does not.
  static inline std::atomic<const std::byte*> slow_from{nullptr}, slow_to{nullptr};

  host_machine(host_cta& cta, std::uint32_t thread, std::uint32_t threads, std::uint32_t cta_index,
               std::uint32_t ctas)
      : cta_{cta}, thread_{thread}, threads_{threads}, index_{cta_index}, ctas_{ctas} {}

  std::uint32_t thread() const { return thread_; }
  std::uint32_t threads() const { return threads_; }
  std::uint32_t cta() const { return index_; }
  std::uint32_t ctas() const { return ctas_; }
  cta_shared& shared() { return cta_.shared; }
  void sync() { cta_.meetings[0].barrier.arrive_and_wait(); }
  void sync(const cta_role& role) { cta_.meetings[role.id].barrier.arrive_and_wait(); }
  bool sync_or(bool mine) { return meet(0, mine); }
  bool sync_or(const cta_role& role, bool mine) { return meet(role.id, mine); }
  void pause() { std::this_thread::yield(); }

  packet load_packet(const packet* from) const {
    return {atomic(from->low).load(std::memory_order_acquire),
            atomic(from->high).load(std::memory_order_acquire)};
  }
  void store_packet(packet* to, packet p) const {
    atomic(to->low).store(p.low, std::memory_order_release);
    atomic(to->high).store(p.high, std::memory_order_release);
  }
  template <class Word>
  Word load_relaxed(const Word* from) const {
    return atomic(*from).load(
        std::memory_order_acquire);  // ThreadSanitizer does not see the fences around it
  }
  std::uint64_t load_system(const std::uint64_t* from) const { return atomic(*from).load(); }
  std::uint64_t load_acquire_system(const std::uint64_t* from) const { return atomic(*from).load(); }
  std::uint64_t load_acquire_device(const std::uint64_t* from) const { return atomic(*from).load(); }
  void store_release_system(std::uint64_t* to, std::uint64_t v) const { atomic(*to).store(v); }
  void store_relaxed_system(std::uint64_t* to, std::uint64_t v) const { atomic(*to).store(v); }
  void store_release_device(std::uint64_t* to, std::uint64_t v) const { atomic(*to).store(v); }
  std::uint32_t load_acquire_cta(const std::uint32_t* from) const { return atomic(*from).load(); }
  void store_release_cta(std::uint32_t* to, std::uint32_t v) const { atomic(*to).store(v); }
  void order_bulk_accesses() const {}
  template <std::uint32_t Bytes, std::uint32_t Words>
  void load(std::uint64_t (&w)[Words], const std::byte* from, bool) const {
    w[0] = 0;
    std::memcpy(w, mapped.common(from), Bytes);
  }
  template <std::uint32_t Bytes, std::uint32_t Words>
  void store(std::byte* to, const std::uint64_t (&w)[Words]) const {
    std::memcpy(to, w, Bytes);
  }
  void compare_exchange(std::uint64_t* at, std::uint64_t expected, std::uint64_t desired) const {
    atomic(*at).compare_exchange_strong(expected, desired);
  }
  std::uint32_t fetch_add(std::uint32_t* at, std::uint32_t v) const { return atomic(*at).fetch_add(v); }
  void count(std::uint32_t* at) const { atomic(*at).fetch_add(1); }
  void fence_device() const { std::atomic_thread_fence(std::memory_order_seq_cst); }
  void fence_system() const { std::atomic_thread_fence(std::memory_order_seq_cst); }
  std::uint64_t nanoseconds() const {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  bool claim(std::uint64_t* at, std::uint64_t now, std::uint64_t next) const {
    std::uint64_t seen = atomic(*at).load();
    return now >= seen && atomic(*at).compare_exchange_strong(seen, next);
  }
  void copy(std::byte* to, const std::byte* from, std::uint64_t bytes, std::uint32_t thread,
            std::uint32_t threads) const {
    if (from >= slow_from.load() && from < slow_to.load())
      std::this_thread::sleep_for(std::chrono::milliseconds{3});
    to = mapped.common(to);
    from = mapped.common(from);
    for (std::uint64_t i = thread; i < bytes; i += threads) to[i] = from[i];
  }
  void copy_arrived(std::byte* to, const std::byte* from, std::uint64_t bytes, std::uint32_t thread,
                    std::uint32_t threads) const {
    copy(to, from, bytes, thread, threads);
  }
  void fill(std::byte* to, std::byte value, std::uint64_t bytes) const {
    for (std::uint64_t i = thread_; i < bytes; i += threads_) to[i] = value;
  }
  static bool push_stripe_in_bulk(host_machine&, operation<host_machine>&, const exchange_args&,
                                  const cta_role&) {
    return false;  // has_bulk_copies says so
  }

 private:
  /// The word for the answer alternates, and is cleared while nobody can be in the meeting after next.
  bool meet(std::uint32_t which, bool mine) {
    host_cta::meeting& with = cta_.meetings[which];
    std::atomic<std::uint32_t>& any = with.any[turn_[which] ^= 1u];
    if (mine) any.store(1);
    with.barrier.arrive_and_wait();
    const bool result = any.load() != 0;
    with.barrier.arrive_and_wait();
    any.store(0);
    return result;
  }
  template <class Word>
  static std::atomic_ref<Word> atomic(const Word& w) {
    auto* at = reinterpret_cast<std::byte*>(const_cast<Word*>(&w));
    return std::atomic_ref<Word>{*reinterpret_cast<Word*>(mapped.common(at))};
  }
  host_cta& cta_;
  std::uint32_t thread_, threads_, index_, ctas_;
  std::uint32_t turn_[6] = {};
};

/// Starts every CTA of a kernel and waits until all have ended.
template <class Kernel>
void launch(std::uint32_t ctas, std::uint32_t threads, Kernel kernel) {
  std::vector<std::unique_ptr<host_cta>> grid;
  std::vector<std::jthread> running;
  for (std::uint32_t c = 0; c < ctas; ++c) grid.push_back(std::make_unique<host_cta>(threads));
  for (std::uint32_t c = 0; c < ctas; ++c)
    for (std::uint32_t t = 0; t < threads; ++t)
      running.emplace_back([&grid, &kernel, c, t, threads, ctas] {
        host_machine m{*grid[c], t, threads, c, ctas};
        kernel(m);
      });
}

/// Every way of serving edges in one kernel, as copy.cu has it for messages. Lines are a GPU's own: an edge
/// planned for them cannot be run here.
template <class Fold>
void run_ways(host_machine& m, const exchange_args& args) {
  if (args.by_ring == 0) return exchange_packets<Fold>(m, args);
  if (args.by_packets == 0) return exchange_ring<Fold>(m, args);
  operation<host_machine> op{m, args};
  ring_exchange<Fold, host_machine> ring{m, op, args};
  ring.prepare();
  bool ok = op.begin();
  if (ok) {
    op.send_signature();
    packet_exchange<host_machine, Fold> packets{m, op, args};
    packets.load_first();
    packets.push();
    ok = !m.sync_or(!packets.take());
    if (ok) ok = ring.run();
  }
  ring.keep();
  op.end(ok);
}
template <class Lane>
void run_folding(host_machine& m, const exchange_args& args) {
  run_ways<fold_of<Lane, any_reduction>>(m, args);
}
inline void run_kernel(host_machine& m, const exchange_args& args) {
  if (args.folds == 0) return run_ways<no_fold>(m, args);
  switch (static_cast<dtype>((args.kinds >> 8) & 0xff)) {
    case dtype::i8:
    case dtype::u8:
      return run_folding<integer_lane<std::uint8_t>>(m, args);
    case dtype::i32:
    case dtype::u32:
      return run_folding<integer_lane<std::uint32_t>>(m, args);
    case dtype::i64:
    case dtype::u64:
      return run_folding<integer_lane<std::uint64_t>>(m, args);
    case dtype::f16:
      return run_folding<small_lane<f16>>(m, args);
    case dtype::bf16:
      return run_folding<small_lane<bf16>>(m, args);
    case dtype::f64:
      return run_folding<f64_lane>(m, args);
    case dtype::f8e4m3:
      return run_folding<small_lane<f8e4m3>>(m, args);
    case dtype::f8e5m2:
      return run_folding<small_lane<f8e5m2>>(m, args);
    default:
      return run_folding<f32_lane>(m, args);
  }
}
inline void launch_exchange(std::uint32_t ctas, std::uint32_t threads, const exchange_args& args) {
  launch(ctas, threads, [&](host_machine& m) { run_kernel(m, args); });
}

/// The memory of `limits.size` ranks, all in this process.
class host_group {
 public:
  explicit host_group(const group_limits& limits, std::uint32_t generation = 7, std::uint64_t counter = 0)
      : limits_{limits}, layout_{make_layout(limits)} {
    for (std::uint32_t r = 0; r < limits.size; ++r)
      ranks_.push_back(std::make_unique<rank_memory>(units(layout_.total)));
    for (std::uint32_t r = 0; r < limits.size; ++r) {
      rank_memory& own = *ranks_[r];
      for (cta_record& record : own.block.records) record.counter = counter;
      for (auto& of_cta : own.block.counters)
        for (std::uint64_t& edge : of_cta) edge = counter;
      group_view& view = own.memory.view;
      view.block = &own.block;
      view.abort = &own.mailbox.abort;
      view.host = &own.mailbox;
      view.generation = generation;
      view.rank = r;
      view.size = limits.size;
      for (std::uint32_t p = 0; p < limits.size; ++p) own.memory.regions[p] = ranks_[p]->region();
      view.layout = layout_;
    }
  }

  device_block& block(std::uint32_t rank) { return ranks_[rank]->block; }
  /// The last operation of the edge between two ranks, as `rank`'s CTA `cta` knows it.
  std::uint64_t counter(std::uint32_t rank, std::uint32_t peer, std::uint32_t cta = 0) {
    const std::uint32_t edge = source_slot(rank, peer);
    return edge == 0 ? block(rank).records[cta].counter : block(rank).counters[cta][edge];
  }
  host_mailbox& mailbox(std::uint32_t rank) { return ranks_[rank]->mailbox; }
  const region_layout& layout() const { return layout_; }
  const group_limits& limits() const { return limits_; }

  /// A launch of `call` on `rank`; `planned` in place of the limits' plan.
  cuda::launch_arguments arguments(std::uint32_t rank, const cuda::exchange_call& call,
                                   const exchange_plan* planned = nullptr, std::uint64_t launch_number = 0) {
    cuda::launch_arguments made = cuda::arguments_of(call, planned, ranks_[rank]->memory, limits_);
    made.args.launch = launch_number;
    made.args.tells_host = launch_number != 0;
    return made;
  }
  cuda::place_in_group place(std::uint32_t rank) const {
    return {static_cast<rank_t>(rank), static_cast<int>(limits_.size)};
  }

 private:
  struct rank_memory {
    explicit rank_memory(std::uint64_t bytes) : words(bytes / sizeof(aligned_line)) {}
    struct alignas(128) aligned_line {
      std::byte bytes[128];
    };
    std::byte* region() { return words.front().bytes; }
    std::vector<aligned_line> words;
    device_block block{};
    host_mailbox mailbox{};
    cuda::group_memory memory;
  };
  group_limits limits_;
  region_layout layout_;
  std::vector<std::unique_ptr<rank_memory>> ranks_;
};

}  // namespace chorale::kernels
