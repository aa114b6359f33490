#include <chorale/transport/guard/pending_table.hpp>

namespace chorale::guarding {
namespace {

std::size_t words_for(rank_t size) { return (static_cast<std::size_t>(size) + 63) / 64; }

}  // namespace

pending_table::pending_table(rank_t size) : size_{size} {
  for (auto& s : slots_) s.ranks = std::make_unique<std::atomic<std::uint64_t>[]>(words_for(size));
}

pending_id pending_table::add(std::uint64_t lane, std::uint64_t ticket, std::span<const rank_t> waits_for,
                              time_point since) noexcept {
  auto free = free_.load();
  do {
    if (free == 0) {
      if (overflow_.fetch_add(1) == 0) overflow_since_ = since.time_since_epoch().count();
      return {slot_count, 0};
    }
  } while (!free_.compare_exchange_weak(free, free & (free - 1)));
  const auto index = static_cast<std::uint32_t>(std::countr_zero(free));
  auto& s = slots_[index];
  // Stored with release and read with acquire: a reader that sees a word of this use sees the end of the last
  // one in the generation too.
  constexpr auto release = std::memory_order_release;
  for (std::size_t w = 0; w < words_for(size_); ++w) s.ranks[w].store(0, release);
  for (const rank_t rank : waits_for) {
    if (rank < 0 || rank >= size_) continue;
    const auto r = static_cast<std::size_t>(rank);
    auto& word = s.ranks[r / 64];
    word.store(word.load(std::memory_order_relaxed) | std::uint64_t{1} << (r % 64), release);
  }
  s.lane.store(lane, release);
  s.ticket.store(ticket, release);
  s.since.store(since.time_since_epoch().count(), release);
  return {index, s.generation.fetch_add(1) + 1};
}

void pending_table::remove(pending_id id) noexcept {
  if (id.slot >= slot_count) {
    overflow_.fetch_sub(1);
    return;
  }
  auto& s = slots_[id.slot];
  auto expected = id.generation;
  if (expected % 2 == 1 && s.generation.compare_exchange_strong(expected, expected + 1))
    free_.fetch_or(std::uint64_t{1} << id.slot);
}

}  // namespace chorale::guarding
