// The kernels' machine on CPU threads: the same protocol code, run by as many threads as a grid has.
//
// 128-bit packets become two 64-bit atomics: each half carries its flag, so a torn packet is never taken for
// a whole one, which is all that the protocol asks. `host_group` is the memory of some ranks in one process;
// `launch` runs one operation on one rank and returns when its kernel has ended.
#pragma once

#include <chorale/kernels/all_reduce_ring.hpp>
#include <chorale/kernels/plan.hpp>

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
  f32x4 load_scratch(const f32x4* from) const { return *from; }
  float load_scratch(const float* from) const { return *from; }
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
  void copy(float* to, const float* from, std::uint32_t n, bool, std::uint32_t thread,
            std::uint32_t threads) const {
    for (std::uint32_t i = thread; i < n; i += threads) to[i] = from[i];
  }
  bool push_stripe_in_bulk(operation<host_machine>&, const all_reduce_args&, const cta_role&, std::uint32_t,
                           std::uint64_t) {
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
    return std::atomic_ref<Word>{const_cast<Word&>(w)};
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

/// Runs an all-reduce as planned, with `threads` in place of the plan's.
inline void launch_all_reduce(const all_reduce_plan& plan, std::uint32_t threads,
                              const all_reduce_args& args) {
  launch(plan.ctas, threads, [&](host_machine& m) {
    if (plan.way == algorithm::ring)
      all_reduce_ring<0>(m, args);
    else
      all_reduce_packets<0>(m, args);
  });
}

/// The memory of `limits.size` ranks, all in this process.
class host_group {
 public:
  explicit host_group(const group_limits& limits, std::uint32_t generation = 7, std::uint64_t counter = 0)
      : limits_{limits}, layout_{make_layout(limits)} {
    for (std::uint32_t r = 0; r < limits.size; ++r)
      ranks_.push_back(std::make_unique<rank_memory>(layout_.total));
    for (std::uint32_t r = 0; r < limits.size; ++r) {
      rank_memory& own = *ranks_[r];
      for (cta_record& record : own.block.records) record.counter = counter;
      own.view.block = &own.block;
      own.view.abort = &own.mailbox.abort;
      own.view.host = &own.mailbox;
      own.view.generation = generation;
      own.view.rank = r;
      own.view.size = limits.size;
      for (std::uint32_t p = 0; p < limits.size; ++p) own.view.regions[p] = ranks_[p]->region();
      own.view.layout = layout_;
    }
  }

  device_block& block(std::uint32_t rank) { return ranks_[rank]->block; }
  const group_view& view(std::uint32_t rank) { return ranks_[rank]->view; }
  host_mailbox& mailbox(std::uint32_t rank) { return ranks_[rank]->mailbox; }
  const region_layout& layout() const { return layout_; }
  const group_limits& limits() const { return limits_; }

  all_reduce_args arguments(std::uint32_t rank, const float* in, float* out, std::uint64_t count,
                            const all_reduce_plan& plan, std::uint64_t launch_number = 0) {
    all_reduce_args args{};
    args.group = view(rank);
    args.in = in;
    args.out = out;
    args.count = count;
    args.launch = launch_number;
    args.chunk = plan.chunk;
    args.stripes = static_cast<std::uint16_t>(plan.stripes);
    args.in_place = in == out;
    args.tells_host = launch_number != 0;
    const auto bits = reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out);
    args.alignment = static_cast<std::uint8_t>(bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : 4);
    args.what = {count, kind_all_reduce, dtype_f32, op_sum, 0, 0};
    return args;
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
    group_view view{};
  };
  group_limits limits_;
  region_layout layout_;
  std::vector<std::unique_ptr<rank_memory>> ranks_;
};

}  // namespace chorale::kernels
