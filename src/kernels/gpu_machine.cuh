// The GPU as a machine for operation.hpp: threads, barriers and memory accesses of a stated order.
//
// Data that arrives during a kernel is read with relaxed.sys or acquire accesses, never through the
// non-coherent path; packets are single 128-bit accesses (.b128, PTX 8.3), so that flag and data cannot part.
#pragma once

#include <chorale/kernels/exchange_ring.hpp>

namespace chorale::kernels {

/// The parameters of a kernel of two ranks, which looks at no more than them.
__device__ inline const exchange_args& of_pair(const pair_args& args) {
  return reinterpret_cast<const exchange_args&>(args);
}

class gpu_machine {
 public:
  static constexpr bool has_bulk_copies = true;
  static constexpr std::uint32_t ranks = 0;  ///< known when compiling; 0: any number

  __device__ explicit gpu_machine(cta_shared& shared) : shared_{shared} {}

  __device__ std::uint32_t thread() const { return threadIdx.x; }
  __device__ std::uint32_t threads() const { return blockDim.x; }
  __device__ std::uint32_t cta() const { return blockIdx.x; }
  __device__ std::uint32_t ctas() const { return gridDim.x; }
  __device__ void sync() { __syncthreads(); }
  __device__ bool sync_or(bool mine) { return __syncthreads_or(mine) != 0; }
  __device__ void sync(const cta_role& role) {
    asm volatile("bar.sync %0, %1;" ::"r"(role.id), "r"(role.threads) : "memory");
  }
  __device__ bool sync_or(const cta_role& role, bool mine) {
    std::uint32_t any;
    asm volatile(
        "{.reg .pred p, q; setp.ne.u32 p, %3, 0; bar.red.or.pred q, %1, %2, p; selp.u32 %0, 1, 0, q;}"
        : "=r"(any)
        : "r"(role.id), "r"(role.threads), "r"(static_cast<std::uint32_t>(mine))
        : "memory");
    return any != 0;
  }
  __device__ cta_shared& shared() { return shared_; }
  __device__ bool any_lane(bool mine) const { return __any_sync(0xffffffffu, mine) != 0; }
  __device__ void pause() {}

  __device__ packet load_packet(const packet* from) const {
    packet p;
    asm volatile("{.reg .b128 t; ld.relaxed.sys.global.b128 t, [%2]; mov.b128 {%0, %1}, t;}"
                 : "=l"(p.low), "=l"(p.high)
                 : "l"(from));
    return p;
  }
  __device__ void store_packet(packet* to, packet p) const {
    asm volatile("{.reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.sys.global.b128 [%0], t;}" ::"l"(to),
                 "l"(p.low), "l"(p.high)
                 : "memory");
  }
  __device__ std::uint64_t load_relaxed(const std::uint64_t* from) const {
    std::uint64_t v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(from));
    return v;
  }
  __device__ std::uint32_t load_relaxed(const std::uint32_t* from) const {
    std::uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from));
    return v;
  }
  __device__ std::uint64_t load_system(const std::uint64_t* from) const {
    std::uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(from));
    return v;
  }
  __device__ std::uint64_t load_acquire_system(const std::uint64_t* from) const {
    std::uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
    return v;
  }
  __device__ void store_release_system(std::uint64_t* to, std::uint64_t v) const {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
  }
  __device__ void store_relaxed_system(std::uint64_t* to, std::uint64_t v) const {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
  }
  __device__ std::uint64_t load_acquire_device(const std::uint64_t* from) const {
    std::uint64_t v;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
    return v;
  }
  __device__ void store_release_device(std::uint64_t* to, std::uint64_t v) const {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
  }
  __device__ std::uint32_t load_acquire_cta(const std::uint32_t* from) const {
    std::uint32_t v;
    asm volatile("ld.acquire.cta.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
  }
  __device__ void store_release_cta(std::uint32_t* to, std::uint32_t v) const {
    asm volatile("st.release.cta.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
  }
  /// Between ordinary accesses of this thread and bulk ones of others, before a barrier or flag between them.
  __device__ void order_bulk_accesses() const { asm volatile("fence.proxy.async;" ::: "memory"); }

  /// `Bytes`, aligned to that, from user memory, or from scratch, where they arrive during the kernel.
  template <std::uint32_t Bytes, std::uint32_t Words>
  __device__ void load(std::uint64_t (&w)[Words], const std::byte* from, bool arrived) const {
    if constexpr (Bytes == 16) {
      if (arrived) {
        asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(w[0]), "=l"(w[1]) : "l"(from));
      } else {
        const auto v = *reinterpret_cast<const ulonglong2*>(from);
        w[0] = v.x;
        w[1] = v.y;
      }
    } else if constexpr (Bytes == 8) {
      if (arrived)
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(w[0]) : "l"(from));
      else
        w[0] = *reinterpret_cast<const std::uint64_t*>(from);
    } else if constexpr (Bytes == 4) {
      std::uint32_t v;
      if (arrived)
        asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(from));
      else
        v = *reinterpret_cast<const std::uint32_t*>(from);
      w[0] = v;
    } else if constexpr (Bytes == 2) {
      std::uint16_t v;
      if (arrived)
        asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=h"(v) : "l"(from));
      else
        v = *reinterpret_cast<const std::uint16_t*>(from);
      w[0] = v;
    } else {
      static_assert(Bytes == 1);
      std::uint32_t v;
      if (arrived)
        asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(v) : "l"(from));
      else
        v = static_cast<std::uint32_t>(*from);
      w[0] = v;
    }
  }
  template <std::uint32_t Bytes, std::uint32_t Words>
  __device__ void store(std::byte* to, const std::uint64_t (&w)[Words]) const {
    if constexpr (Bytes == 16)
      *reinterpret_cast<ulonglong2*>(to) = make_ulonglong2(w[0], w[1]);
    else if constexpr (Bytes == 8)
      *reinterpret_cast<std::uint64_t*>(to) = w[0];
    else if constexpr (Bytes == 4)
      *reinterpret_cast<std::uint32_t*>(to) = static_cast<std::uint32_t>(w[0]);
    else if constexpr (Bytes == 2)
      *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(w[0]);
    else
      *to = static_cast<std::byte>(w[0]);
  }

  __device__ void compare_exchange(std::uint64_t* at, std::uint64_t expected, std::uint64_t desired) const {
    atomicCAS(reinterpret_cast<unsigned long long*>(at), expected, desired);
  }
  __device__ std::uint32_t fetch_add(std::uint32_t* at, std::uint32_t v) const { return atomicAdd(at, v); }
  /// Adds one without waiting for the result.
  __device__ void count(std::uint32_t* at) const {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(at) : "memory");
  }
  __device__ void fence_device() const { __threadfence(); }
  __device__ void fence_system() const { __threadfence_system(); }

  __device__ std::uint64_t nanoseconds() const {
    std::uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
  }
  /// True for one thread of the CTA each time `*at` (in shared memory) has passed; moves it to `next`.
  __device__ bool claim(std::uint64_t* at, std::uint64_t now, std::uint64_t next) const {
    const unsigned long long seen = *reinterpret_cast<volatile unsigned long long*>(at);
    return now >= seen && atomicCAS(reinterpret_cast<unsigned long long*>(at), seen, next) == seen;
  }

  /// By `threads` threads, of any alignment.
  __device__ void copy(std::byte* to, const std::byte* from, std::uint64_t bytes, std::uint32_t thread,
                       std::uint32_t threads) const {
    copy_aligned(to, from, bytes, false, thread, threads);
  }
  /// The same from scratch.
  __device__ void copy_arrived(std::byte* to, const std::byte* from, std::uint64_t bytes,
                               std::uint32_t thread, std::uint32_t threads) const {
    copy_aligned(to, from, bytes, true, thread, threads);
  }
  /// By the whole CTA.
  __device__ void fill(std::byte* to, std::byte value, std::uint64_t bytes) const {
    const std::uint64_t word = static_cast<std::uint64_t>(value) * 0x0101010101010101ull;
    std::uint64_t head = (16 - reinterpret_cast<std::uintptr_t>(to) % 16) % 16;
    if (head > bytes) head = bytes;
    const std::uint64_t body = (bytes - head) / 16;
    for (std::uint64_t i = thread(); i < head; i += threads()) to[i] = value;
    for (std::uint64_t i = thread(); i < body; i += threads()) store<16>(to + head + i * 16, {word, word});
    for (std::uint64_t i = head + body * 16 + thread(); i < bytes; i += threads()) to[i] = value;
  }

  template <class M>
  __device__ static bool push_stripe_in_bulk(M& m, operation<M>& op, const exchange_args& args,
                                             const cta_role& role);

 private:
  /// Whole units of `Bytes` from `done` on; returns where they end.
  template <std::uint32_t Bytes>
  __device__ std::uint64_t copy_units(std::byte* to, const std::byte* from, std::uint64_t done,
                                      std::uint64_t bytes, bool arrived, std::uint32_t thread,
                                      std::uint32_t threads) const {
    constexpr std::uint32_t ahead = 4;
    constexpr std::uint32_t words = (Bytes + 7) / 8;
    const std::uint64_t n = (bytes - done) / Bytes;
    to += done;
    from += done;
    std::uint64_t i = thread;
    for (; i + (ahead - 1) * threads < n; i += ahead * threads) {
      std::uint64_t w[ahead][words];
#pragma unroll
      for (std::uint32_t k = 0; k < ahead; ++k) load<Bytes>(w[k], from + (i + k * threads) * Bytes, arrived);
#pragma unroll
      for (std::uint32_t k = 0; k < ahead; ++k) store<Bytes>(to + (i + k * threads) * Bytes, w[k]);
    }
    for (; i < n; i += threads) {
      std::uint64_t w[words];
      load<Bytes>(w, from + i * Bytes, arrived);
      store<Bytes>(to + i * Bytes, w);
    }
    return done + n * Bytes;
  }
  __device__ void copy_aligned(std::byte* to, const std::byte* from, std::uint64_t bytes, bool arrived,
                               std::uint32_t thread, std::uint32_t threads) const {
    const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
    std::uint64_t done = 0;
    if (bits % 16 == 0)
      done = copy_units<16>(to, from, done, bytes, arrived, thread, threads);
    else if (bits % 8 == 0)
      done = copy_units<8>(to, from, done, bytes, arrived, thread, threads);
    if (bits % 4 == 0)
      done = copy_units<4>(to, from, done, bytes, arrived, thread, threads);
    else if (bits % 2 == 0)
      done = copy_units<2>(to, from, done, bytes, arrived, thread, threads);
    copy_units<1>(to, from, done, bytes, arrived, thread, threads);
  }

  cta_shared& shared_;
};

/// Of a kernel of two ranks.
class pair_machine : public gpu_machine {
 public:
  static constexpr std::uint32_t ranks = 2;
  using gpu_machine::gpu_machine;
};

}  // namespace chorale::kernels
