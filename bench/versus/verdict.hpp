// Who won: ratios of a peer's time over ours, gathered over the sizes of a table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::bench::versus {

enum class outcome { won, tied, lost };

/// Within 2 % either way nobody has won.
[[nodiscard]] outcome outcome_of(double ratio) noexcept;
[[nodiscard]] std::string_view name_of(outcome o) noexcept;

/// "64 KiB", "8 B".
[[nodiscard]] std::string text_of_bytes(std::uint64_t bytes);

[[nodiscard]] double median(std::vector<double> values);

class verdict {
 public:
  void add(std::uint64_t bytes, double ratio, const std::string& peer);
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  [[nodiscard]] double geometric_mean() const;
  [[nodiscard]] int count(outcome o) const;
  /// "geometric mean 1.31, worst 0.84 at 64 KiB (openmpi (tcp)); 7 won, 1 tied, 1 lost"
  [[nodiscard]] std::string summary() const;
  /// "lost: 64 KiB 0.84 to openmpi (tcp), …", or nothing.
  [[nodiscard]] std::string losses() const;

 private:
  struct entry {
    std::uint64_t bytes;
    double ratio;
    std::string peer;
  };
  std::vector<entry> all_;
};

}  // namespace chorale::bench::versus
