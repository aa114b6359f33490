// Which kernel an all-reduce uses and with what grid: a pure function of the count and of the limits that all
// ranks agreed on. Never of pointers, alignment or anything else that only one rank knows: what goes on the
// wire follows from the plan.
#pragma once

#include <chorale/kernels/device_block.hpp>

#include <algorithm>

namespace chorale::kernels {

enum class algorithm : std::uint8_t {
  packets,  ///< LL: one-shot push of flagged 16-byte packets
  lines,    ///< LL128: one-shot push of flagged 128-byte lines; sm_90 over NVLink only
  ring,     ///< push into the peers' scratch ring, reduce locally
};

struct all_reduce_plan {
  algorithm way = algorithm::packets;
  std::uint32_t ctas = 1;
  std::uint32_t threads = 64;
  std::uint32_t stripes = 0;      ///< ring
  std::uint32_t chunk = 0;        ///< ring: elements
  std::uint32_t lines_ahead = 1;  ///< lines: lines in flight per quarter warp, 1, 2 or 4
};

inline constexpr std::uint32_t cta_threads = 512;
/// In the packet and line kernels a warp more, for signatures.
inline constexpr std::uint32_t signature_threads = 32;
/// In the ring kernel a warp more in each half, for the bulk pusher.
inline constexpr std::uint32_t pusher_threads = 32;
/// Dynamic shared memory of the ring kernel: the stages of both halves' bulk pushers (push_bulk.cuh).
inline constexpr std::uint32_t ring_shared_bytes = 196'608;

constexpr std::uint32_t divide_up(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint32_t>((a + b - 1) / b);
}

/// One CTA for small messages: several have to find out who is last where the host is told. Beyond, one
/// packet per thread.
constexpr all_reduce_plan plan_packets(std::uint64_t count, const group_limits& limits) {
  constexpr std::uint32_t most_alone = 512;
  constexpr std::uint32_t each_of_many = 256;
  const std::uint64_t packets = (count + 1) / 2;
  all_reduce_plan plan;
  plan.way = algorithm::packets;
  if (packets <= most_alone) {
    plan.threads = std::max(divide_up(packets, 32) * 32, 32u) + signature_threads;
  } else {
    plan.ctas = std::clamp(divide_up(packets, each_of_many), 1u, limits.ctas);
    plan.threads = each_of_many + signature_threads;
  }
  return plan;
}

constexpr all_reduce_plan plan_lines(std::uint64_t count, const group_limits& limits) {
  const std::uint64_t lines = lines_of(count);
  const std::uint64_t per_cta = cta_threads / 32 * lines_per_warp;
  all_reduce_plan plan;
  plan.way = algorithm::lines;
  plan.ctas = std::clamp(divide_up(lines, per_cta), 1u, limits.ctas);
  plan.threads = cta_threads + signature_threads;
  const std::uint64_t rounds = lines / (per_cta * plan.ctas);
  plan.lines_ahead = rounds >= 32 ? 4 : rounds >= 1 ? 2 : 1;
  return plan;
}

constexpr all_reduce_plan plan_ring(std::uint64_t count, const group_limits& limits) {
  all_reduce_plan plan;
  plan.way = algorithm::ring;
  plan.stripes = 2 * limits.ctas;
  plan.ctas = limits.ctas;
  plan.threads = cta_threads + 2 * pusher_threads;
  // at least eight chunks per stripe, so that filling and draining the pipe stays a small part; not below
  // 64 KiB, where flags cost more than data; whole tiles of the bulk pusher
  constexpr std::uint64_t tile = 16384;
  const std::uint64_t wanted = count * sizeof(float) / plan.stripes / 8 / tile * tile;
  const std::uint64_t chunk =
      std::min<std::uint64_t>(std::max<std::uint64_t>(wanted, 4 * tile), limits.ring_chunk);
  plan.chunk = static_cast<std::uint32_t>(chunk / sizeof(float));
  return plan;
}

constexpr all_reduce_plan plan_all_reduce(std::uint64_t count, const group_limits& limits) {
  const std::uint64_t bytes = count * sizeof(float);
  if (bytes <= limits.ll_bytes || limits.size == 1) return plan_packets(count, limits);
  if (bytes <= limits.ll128_bytes) return plan_lines(count, limits);
  return plan_ring(count, limits);
}

}  // namespace chorale::kernels
