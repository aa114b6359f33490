// The operations that have waited long enough for the guard to care, and for whom each waits.
//
// A fixed array of slots: claimed and given back with one atomic instruction each by engines of any thread,
// read by the watch thread while they change. No lock, no allocation after construction. When all slots are
// taken, further operations count as waiting for every rank.
#pragma once

#include <chorale/async/error.hpp>
#include <chorale/transport/guard/membership.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

namespace chorale::guarding {

class pending_table {
 public:
  static constexpr std::uint32_t slot_count = 64;
  using time_point = std::chrono::steady_clock::time_point;

  explicit pending_table(rank_t size);

  pending_id add(std::uint64_t lane, std::uint64_t ticket, std::span<const rank_t> waits_for,
                 time_point since) noexcept;
  void remove(pending_id id) noexcept;
  [[nodiscard]] bool empty() const noexcept {
    return free_.load() == ~std::uint64_t{0} && overflow_.load() == 0;
  }

  /// Calls `f(since, lane, ticket, waits_for)` for every operation that is pending throughout the call;
  /// `waits_for(rank)` tells whether it waits for that rank.
  template <class F>
  void for_each(F&& f) const {
    for (const auto& s : slots_) visit(s, f);
    if (overflow_.load() != 0)
      f(time_point{time_point::duration{overflow_since_.load()}}, std::uint64_t{0}, std::uint64_t{0},
        [](rank_t) { return true; });
  }

 private:
  struct slot {
    std::atomic<std::uint32_t> generation{0};  // odd while in use
    std::atomic<std::uint64_t> lane{0};
    std::atomic<std::uint64_t> ticket{0};
    std::atomic<time_point::rep> since{0};
    std::unique_ptr<std::atomic<std::uint64_t>[]> ranks;  // a bit per rank
  };

  template <class F>
  void visit(const slot& s, F& f) const {
    const auto generation = s.generation.load();
    if (generation % 2 == 0) return;
    const auto lane = s.lane.load();
    const auto ticket = s.ticket.load();
    const auto since = s.since.load();
    if (s.generation.load() != generation) return;
    // A slot reused from here on mixes the rank sets of two operations; at worst a rank is asked once in
    // vain.
    f(time_point{time_point::duration{since}}, lane, ticket, [&s](rank_t rank) {
      const auto r = static_cast<std::size_t>(rank);
      return ((s.ranks[r / 64].load() >> (r % 64)) & 1) != 0;
    });
  }

  rank_t size_;
  std::atomic<std::uint64_t> free_{~std::uint64_t{0}};
  std::atomic<std::uint64_t> overflow_{0};
  std::atomic<time_point::rep> overflow_since_{0};
  std::array<slot, slot_count> slots_;
};

}  // namespace chorale::guarding
