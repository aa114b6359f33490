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

constexpr all_reduce_plan plan_packets(std::uint64_t count, const group_limits& limits) {
  const std::uint64_t packets = (count + 1) / 2;
  all_reduce_plan plan;
  plan.way = algorithm::packets;
  plan.ctas = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>((packets + cta_threads - 1) / cta_threads, 1, limits.ctas));
  // the last warp sees to signatures; below a full CTA it has no packets, so that neither delays the other
  const std::uint64_t wanted = (packets + 31) / 32 * 32 + 32;
  plan.threads = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 64, cta_threads));
  return plan;
}

constexpr all_reduce_plan plan_lines(std::uint64_t count, const group_limits& limits) {
  const std::uint64_t lines = lines_of(count);
  const std::uint64_t per_cta = cta_threads / 32 * lines_per_warp;
  all_reduce_plan plan;
  plan.way = algorithm::lines;
  plan.ctas =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>((lines + per_cta - 1) / per_cta, 1, limits.ctas));
  plan.threads = cta_threads;
  const std::uint64_t rounds = lines / (per_cta * plan.ctas);
  plan.lines_ahead = rounds >= 4 ? 4 : rounds >= 2 ? 2 : 1;
  return plan;
}

constexpr all_reduce_plan plan_ring(std::uint64_t count, const group_limits& limits) {
  all_reduce_plan plan;
  plan.way = algorithm::ring;
  plan.stripes = std::min(limits.ctas / 2, max_stripes);
  plan.ctas = 2 * plan.stripes;
  plan.threads = cta_threads;
  // at least eight chunks per stripe, so that filling and draining the pipe stays a small part; not below
  // 64 KiB, where flags cost more than data
  std::uint64_t chunk = limits.ring_chunk;
  while (chunk > 65536 && count * sizeof(float) < chunk * plan.stripes * 8) chunk /= 2;
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
