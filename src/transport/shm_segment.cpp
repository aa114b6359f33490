#include <chorale/transport/asymmetric_fence.hpp>
#include <chorale/transport/shm_segment.hpp>

#include <algorithm>
#include <bit>
#include <new>
#include <string>

namespace chorale {
namespace {

constexpr std::uint64_t magic = 0x65'6c'61'72'6f'68'63'01;
constexpr std::uint32_t version = 2;
constexpr std::uint64_t largest_ring = 1u << 20;
constexpr std::uint64_t smallest_ring = 128u << 10;  // a piece, and as much again skipped at the end

constexpr std::size_t fixed_bytes = sizeof(shm_header_line) + sizeof(shm_owner_line);
constexpr std::size_t tiny_at = sizeof(shm_writer_line) + sizeof(shm_reader_line);
constexpr std::size_t slots_at = tiny_at + tiny_slots * sizeof(tiny_line);
constexpr std::size_t channel_fixed_bytes = slots_at + short_slots * sizeof(short_slot);

}  // namespace

std::uint64_t shm_segment::ring_bytes(std::uint32_t slots) noexcept {
  const std::uint64_t share = segment_budget / std::max(slots, 1u);
  return std::clamp(std::bit_floor(share), smallest_ring, largest_ring);
}

std::size_t shm_segment::bytes(std::uint32_t slots) noexcept {
  return fixed_bytes + slots * (channel_fixed_bytes + ring_bytes(slots));
}

shm_segment shm_segment::initialise(void* memory, std::uint32_t slots) noexcept {
  ::new (memory) shm_header_line{magic, version, slots, ring_bytes(slots)};
  return {memory, slots};
}

result<shm_segment> shm_segment::open(void* memory, std::size_t mapped, std::uint32_t slots) {
  const auto* header = static_cast<const shm_header_line*>(memory);
  if (mapped < bytes(slots) || header->magic != magic || header->version != version ||
      header->slots != slots || header->ring_bytes != ring_bytes(slots))
    return error{errc::protocol_error, "a host-mate's shared segment has another layout than version " +
                                           std::to_string(version) + " for " + std::to_string(slots) +
                                           " slots"};
  return shm_segment{memory, slots};
}

void shm_segment::fence_for_mates() const noexcept {
  if (heavy_fences_work()) owner().heavy_fence.store(1, std::memory_order_relaxed);
}

shm_owner_line& shm_segment::owner() const noexcept {
  return *reinterpret_cast<shm_owner_line*>(base_ + sizeof(shm_header_line));
}

shm_channel shm_segment::channel(std::uint32_t writer) const noexcept {
  std::byte* at = base_ + fixed_bytes + writer * (channel_fixed_bytes + ring_bytes(slots_));
  shm_channel found{};
  found.writer = reinterpret_cast<shm_writer_line*>(at);
  found.reader = reinterpret_cast<shm_reader_line*>(at + sizeof(shm_writer_line));
  found.tiny = reinterpret_cast<tiny_line*>(at + tiny_at);
  found.slot = reinterpret_cast<short_slot*>(at + slots_at);
  found.ring = at + channel_fixed_bytes;
  found.ring_bytes = ring_bytes(slots_);
  return found;
}

}  // namespace chorale
