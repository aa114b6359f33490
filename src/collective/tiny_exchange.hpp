// The hand-written path for tiny all_reduce and barrier among host-mates: every rank writes one cache line to
// every other and folds what comes, in rank order. One line transfer of latency; its oracle in tests is the
// slice-owner schedule, which computes the same left fold.
//
// It first looks for the lines itself, for a moment, so that ranks that arrive together never suspend; what
// is missing then is awaited like any other message.
#pragma once

#include <chorale/collective/combining.hpp>
#include <chorale/collective/in_flight.hpp>
#include <chorale/transport/pair.hpp>

#include <memory>

namespace chorale {

class tiny_exchange final : public in_flight {
 public:
  /// For up to so many ranks.
  explicit tiny_exchange(rank_t ranks);
  void prepare(const combining& how) noexcept { how_ = how; }

 protected:
  void begin() override;
  void take_back() noexcept override;
  [[nodiscard]] bool needs(rank_t in_epoch) const noexcept override;
  void recycle() noexcept override;

 private:
  struct seat {
    alignas(64) std::byte value[tiny_line::capacity];
    bool here = false;
    posted_receive receive;
    outgoing send;  // only when the peer's lines were full
    tiny_exchange* home = nullptr;
  };
  void write_lines() noexcept;
  bool look(rank_t peer) noexcept;
  void await_rest() noexcept;
  void arrived() noexcept;
  void fold() noexcept;
  void fold_wide(std::byte* out, std::size_t count) noexcept;

  std::unique_ptr<seat[]> seats_;
  rank_t ranks_ = 0;
  combining how_;
  std::uint32_t missing_ = 0;  // lines not here, and sends not handed over
  std::size_t bytes_ = 0;
};

}  // namespace chorale
