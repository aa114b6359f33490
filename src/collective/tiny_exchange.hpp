// The hand-written path for tiny collectives among host-mates: whoever has something for another rank writes
// it one cache line. For all_reduce and barrier every rank folds what comes, in rank order; all_gather,
// all_to_all and broadcast put it where it belongs. One line transfer of latency; the oracles in tests are
// the slice-owner schedule, which computes the same left fold, and the direct ones.
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
  /// What a line carries.
  [[nodiscard]] static std::uint64_t line_bytes(const call& what, rank_t ranks) noexcept {
    return what.kind == collective_kind::all_to_all ? what.bytes() / static_cast<std::uint64_t>(ranks)
                                                    : what.bytes();
  }

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
  void take_own_value() noexcept;
  [[nodiscard]] const std::byte* value_for(rank_t peer) noexcept;
  void write_lines() noexcept;
  void write_line(rank_t peer, tiny_line& line) noexcept;
  bool look(rank_t peer) noexcept;
  void await_rest() noexcept;
  void arrived() noexcept;
  void conclude() noexcept;
  void fold() noexcept;
  void fold_wide(std::byte* out, std::size_t count) noexcept;

  std::unique_ptr<seat[]> seats_;
  rank_t ranks_ = 0;
  combining how_;
  std::uint32_t missing_ = 0;                              // lines not here, and sends not handed over
  std::size_t bytes_ = 0;                                  // of a line
  collective_kind pattern_ = collective_kind::all_reduce;  // who has something for whom
};

}  // namespace chorale
