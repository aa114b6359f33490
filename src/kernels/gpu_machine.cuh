// The GPU as a machine for operation.hpp: threads, barriers and memory accesses of a stated order.
//
// Data that arrives during a kernel is read with relaxed.sys or acquire accesses, never through the
// non-coherent path; packets are single 128-bit accesses (.b128, PTX 8.3), so that flag and data cannot part.
#pragma once

#include <chorale/kernels/all_reduce_ring.hpp>

namespace chorale::kernels {

class gpu_machine {
 public:
  static constexpr bool has_bulk_copies = true;

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
  __device__ f32x4 load_scratch(const f32x4* from) const {
    f32x4 r;
    asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(r.v[0]), "=f"(r.v[1]), "=f"(r.v[2]), "=f"(r.v[3])
                 : "l"(from));
    return r;
  }
  __device__ float load_scratch(const float* from) const {
    float v;
    asm volatile("ld.relaxed.sys.global.f32 %0, [%1];" : "=f"(v) : "l"(from));
    return v;
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

  /// By `threads` threads. `to` is a slot in a peer's scratch, always aligned; `from` may not be.
  __device__ void copy(float* to, const float* from, std::uint32_t n, bool aligned, std::uint32_t thread,
                       std::uint32_t threads) const {
    std::uint32_t done = 0;
    if (aligned) {
      const auto* source = reinterpret_cast<const float4*>(from);
      auto* target = reinterpret_cast<float4*>(to);
      for (std::uint32_t i = thread; i < n / 4; i += threads) target[i] = source[i];
      done = n / 4 * 4;
    }
    for (std::uint32_t i = done + thread; i < n; i += threads) to[i] = from[i];
  }

  __device__ bool push_stripe_in_bulk(operation<gpu_machine>& op, const all_reduce_args& args,
                                      const cta_role& role, std::uint32_t stripe, std::uint64_t sequence);

 private:
  cta_shared& shared_;
};

}  // namespace chorale::kernels
