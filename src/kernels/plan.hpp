// Which kernel an exchange uses and with what grid: a pure function of sizes and of the limits that all ranks
// agreed on. Never of pointers, alignment or anything else that only one rank knows: what goes on the wire
// follows from the plan. Of a collective all ranks plan with the same size; of messages, both ranks of an
// edge.
#pragma once

#include <chorale/kernels/device_block.hpp>

#include <algorithm>

namespace chorale::kernels {

enum class algorithm : std::uint8_t {
  packets,  ///< LL: one-shot push of flagged 16-byte packets
  lines,    ///< LL128: one-shot push of flagged 128-byte lines; sm_90 over NVLink only
  ring,     ///< push into the peers' scratch ring, copy or fold there
};

struct exchange_plan {
  algorithm way = algorithm::packets;
  std::uint32_t ctas = 1;
  std::uint32_t threads = 64;
  std::uint32_t stripes = 0;      ///< ring
  std::uint32_t chunk = 0;        ///< ring: bytes
  std::uint32_t lines_ahead = 1;  ///< lines: lines in flight per quarter warp, 1, 2 or 4
  bool gathers = false;           ///< all_reduce: each rank folds a share, then all gather the shares
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

/// `bytes`: of the largest extent between two ranks.
/// One CTA for small messages: several have to find out who is last where the host is told. Beyond, one
/// packet per thread.
constexpr exchange_plan plan_packets(std::uint64_t bytes, const group_limits& limits) {
  constexpr std::uint32_t most_alone = 512;
  constexpr std::uint32_t each_of_many = 256;
  const std::uint64_t packets = words_of(bytes);
  exchange_plan plan;
  plan.way = algorithm::packets;
  if (packets <= most_alone) {
    plan.threads = std::max(divide_up(packets, 32) * 32, 32u) + signature_threads;
  } else {
    plan.ctas = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>((packets + each_of_many - 1) / each_of_many, 1, limits.ctas));
    plan.threads = each_of_many + signature_threads;
  }
  return plan;
}

constexpr exchange_plan plan_lines(std::uint64_t bytes, const group_limits& limits) {
  const std::uint64_t lines = lines_of(bytes);
  const std::uint64_t per_cta = cta_threads / 32 * lines_per_warp;
  exchange_plan plan;
  plan.way = algorithm::lines;
  plan.ctas = std::clamp(divide_up(lines, per_cta), 1u, limits.ctas);
  plan.threads = cta_threads + signature_threads;
  const std::uint64_t rounds = lines / (per_cta * plan.ctas);
  plan.lines_ahead = rounds >= 32 ? 4 : rounds >= 1 ? 2 : 1;
  return plan;
}

/// Chunks of an extent: at least eight per stripe, so that filling and draining the pipe stays a small part;
/// not below 64 KiB, where flags cost more than data; whole tiles of the bulk pusher.
constexpr std::uint32_t ring_chunk_of(std::uint64_t bytes, const group_limits& limits) {
  constexpr std::uint64_t tile = 16384;
  const std::uint64_t wanted = bytes / (2 * limits.ctas) / 8 / tile * tile;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(std::max<std::uint64_t>(wanted, 4 * tile), limits.ring_chunk));
}

constexpr exchange_plan plan_ring(std::uint64_t bytes, const group_limits& limits) {
  exchange_plan plan;
  plan.way = algorithm::ring;
  plan.stripes = 2 * limits.ctas;
  plan.ctas = limits.ctas;
  plan.threads = cta_threads + 2 * pusher_threads;
  plan.chunk = ring_chunk_of(bytes, limits);
  return plan;
}

/// By the largest extent between two ranks.
constexpr exchange_plan plan_exchange(std::uint64_t bytes, const group_limits& limits) {
  if (bytes <= limits.ll_bytes || limits.size == 1) return plan_packets(bytes, limits);
  if (bytes <= limits.ll128_bytes) return plan_lines(bytes, limits);
  return plan_ring(bytes, limits);
}

/// Where bytes go one way only, between the root and the others: fewer stripes drift less apart.
constexpr exchange_plan plan_one_way(std::uint64_t bytes, const group_limits& limits) {
  constexpr std::uint64_t wants_all_ctas = 268'435'456;
  constexpr std::uint32_t most_ctas = 48;
  group_limits fewer = limits;
  if (bytes < wants_all_ctas) fewer.ctas = std::min(fewer.ctas, most_ctas);
  const exchange_plan plan = plan_exchange(bytes, limits);
  return plan.way == algorithm::ring ? plan_ring(bytes, fewer) : plan;
}

/// The share of rank `rank` when `ranks` share a vector: whole lines of 128 bytes, the last ones less.
struct shared_range {
  std::uint64_t begin;
  std::uint64_t bytes;
};
constexpr std::uint64_t share_bytes(std::uint64_t bytes, std::uint32_t ranks) {
  return ((bytes + ranks - 1) / ranks + 127) / 128 * 128;
}
constexpr shared_range share_range(std::uint64_t bytes, std::uint32_t ranks, std::uint32_t rank) {
  const std::uint64_t share = share_bytes(bytes, ranks);
  const std::uint64_t begin = std::min(bytes, rank * share);
  return {begin, std::min(share, bytes - begin)};
}

/// Among two ranks, each folds all it gets: the same bytes travel either way. Among more, once bytes decide
/// rather than hops, each rank folds its share and sends that around: 2 (n-1)/n of the vector instead of n-1
/// of it.
constexpr exchange_plan plan_all_reduce(std::uint64_t bytes, const group_limits& limits) {
  constexpr std::uint64_t worth_a_second_hop = 524'288;
  if (limits.size <= 2 || bytes <= limits.ll_bytes) return plan_exchange(bytes, limits);
  const bool by_lines = bytes <= limits.ll128_bytes;
  if (by_lines && bytes * (limits.size - 2) < worth_a_second_hop) return plan_lines(bytes, limits);
  const std::uint64_t share = share_bytes(bytes, limits.size);
  // both parts of the operation need their own slots
  exchange_plan plan = 2 * share <= limits.ll128_bytes ? plan_lines(share, limits) : plan_ring(share, limits);
  plan.gathers = true;
  return plan;
}

}  // namespace chorale::kernels
