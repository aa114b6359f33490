// Which algorithm serves a call.
//
// A pure function of what all ranks know alike: the call's signature, the number of ranks, and settings that
// rank 0 decided for everyone when the communicator was made. Nothing local takes part.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/collective/call.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace chorale {

/// Values travel in the settings: append, never renumber.
enum class algorithm_kind : std::uint8_t {
  automatic = 0,
  tiny = 1,  ///< one line to every host-mate
  recursive_doubling = 2,
  slice_owner = 3,
  ring = 4,
  chain = 5,
  binomial = 6,
  double_tree = 7,
  direct = 8,
  bruck = 9,
  halving = 10,       ///< recursive halving, for all_reduce with doubling after it
  hierarchical = 11,  ///< inside hosts, then among them
};
inline constexpr std::size_t algorithm_kinds = 12;
[[nodiscard]] std::string_view name_of(algorithm_kind kind) noexcept;
[[nodiscard]] result<algorithm_kind> parse_algorithm(std::string_view name);

/// Whether an algorithm exists for a collective.
[[nodiscard]] bool serves(algorithm_kind algorithm, collective_kind kind) noexcept;
/// "ring, direct".
[[nodiscard]] std::string algorithms_for(collective_kind kind);

enum class reproducibility : std::uint8_t {
  same_on_all_ranks = 0,  ///< bitwise the same result on every rank
  deterministic = 1,      ///< and a left fold in rank order, whatever the size, the transport and the run
};

struct selection_settings {
  std::array<algorithm_kind, collective_kinds> forced{};  ///< by collective
  reproducibility mode = reproducibility::same_on_all_ranks;
  bool all_lines = false;         ///< every pair of ranks has the one-line path
  bool hosts_of_several = false;  ///< there are several hosts, and one at least has several ranks

  [[nodiscard]] algorithm_kind forced_for(collective_kind kind) const noexcept {
    return forced[static_cast<std::size_t>(kind)];
  }
  /// For every collective that has it.
  void force(algorithm_kind algorithm) noexcept;
  /// "ring", or "all_reduce=ring,broadcast=chain", or both mixed. A bare name counts wherever that algorithm
  /// exists and nothing else is named; errc::invalid_argument where a named collective does not have it.
  [[nodiscard]] result<void> force(std::string_view list);
  /// Whether mode and forced algorithms go together.
  [[nodiscard]] result<void> check() const;

  /// In 64 bits, for the bootstrap's record.
  [[nodiscard]] std::uint64_t encoded() const noexcept;
  [[nodiscard]] static selection_settings decoded(std::uint64_t bits) noexcept;
  /// CHORALE_ALGO and CHORALE_DETERMINISTIC.
  [[nodiscard]] static result<selection_settings> from_environment();
};

/// Sums and products of 16- and 8-bit floats are folded in f32, where the algorithm allows.
[[nodiscard]] bool folds_wider(const call& what) noexcept;
/// Whether it allows: others send partial sums.
[[nodiscard]] bool keeps_folds_wide(algorithm_kind algorithm, const call& what) noexcept;

[[nodiscard]] algorithm_kind choose(const selection_settings& settings, const call& what,
                                    rank_t ranks) noexcept;

}  // namespace chorale
