// What happened in a simulation, as one number: two runs that differ in anything have different digests.
//
// Records can be kept as well, for a person who looks into one seed. One engine's thread.
#pragma once

#include <chorale/async/clock.hpp>
#include <chorale/async/error.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace chorale {

enum class simulated_event : std::uint8_t {
  sent,       ///< a frame left its rank; detail: receiver
  arrived,    ///< a frame was delivered; detail: sender
  swallowed,  ///< a frame was lost on purpose; detail: sender
  broken,     ///< a rank saw a connection end; detail: the other rank
  died,
  left,
  noticed,  ///< a guard learnt of a cause; detail: culprit
  heard,    ///< a guard learnt that a rank left; detail: that rank
  called,   ///< detail: the program's operation
  ended,    ///< detail: operation << 8 | errc
};

class simulated_trace {
 public:
  struct record {
    time_point at;
    rank_t who = no_rank;
    simulated_event what = simulated_event::sent;
    std::uint64_t detail = 0;
  };

  void keep_records() noexcept { keep_ = true; }
  void note(time_point at, rank_t who, simulated_event what, std::uint64_t detail) {
    mix(static_cast<std::uint64_t>(at.time_since_epoch().count()));
    mix(static_cast<std::uint64_t>(static_cast<std::uint32_t>(who)) << 8 | static_cast<std::uint8_t>(what));
    mix(detail);
    if (keep_) records_.push_back({at, who, what, detail});
  }
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }
  [[nodiscard]] const std::vector<record>& records() const noexcept { return records_; }

 private:
  void mix(std::uint64_t value) noexcept {
    digest_ = (digest_ ^ value) * 0x9e3779b97f4a7c15u;
    digest_ ^= digest_ >> 29;
  }
  std::uint64_t digest_ = 0x243f6a8885a308d3u;
  std::vector<record> records_;
  bool keep_ = false;
};

/// One line: "+123 µs rank 4 arrived 3".
[[nodiscard]] std::string describe(const simulated_trace::record& r, time_point start);

}  // namespace chorale
