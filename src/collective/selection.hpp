// Which algorithm serves a call, and the plans made for it.
//
// A pure function of what all ranks know alike: the call's signature, the number of ranks, and settings that
// rank 0 decided for everyone when the communicator was made. Nothing local takes part.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/schedule/plan.hpp>

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>

namespace chorale {

enum class algorithm_kind : std::uint8_t {
  automatic = 0,
  tiny = 1,
  recursive_doubling = 2,
  slice_owner = 3,
  ring = 4
};
[[nodiscard]] std::string_view name_of(algorithm_kind kind) noexcept;
[[nodiscard]] result<algorithm_kind> parse_algorithm(std::string_view name);

enum class reproducibility : std::uint8_t {
  same_on_all_ranks = 0,  ///< bitwise the same result on every rank
  deterministic = 1,      ///< and a left fold in rank order, whatever the size, the transport and the run
};

struct selection_settings {
  algorithm_kind forced = algorithm_kind::automatic;
  reproducibility mode = reproducibility::same_on_all_ranks;
  bool all_lines = false;  ///< every pair of ranks has the one-line path
  /// In 64 bits, for the bootstrap's record.
  [[nodiscard]] std::uint64_t encoded() const noexcept;
  [[nodiscard]] static selection_settings decoded(std::uint64_t bits) noexcept;
  /// CHORALE_ALGO and CHORALE_DETERMINISTIC.
  [[nodiscard]] static result<selection_settings> from_environment();
};

/// For all_reduce of `bytes` among `ranks`.
[[nodiscard]] algorithm_kind choose_all_reduce(const selection_settings& settings, rank_t ranks,
                                               std::uint64_t bytes) noexcept;

struct plan_key {
  algorithm_kind algorithm = algorithm_kind::automatic;
  bool in_place = false;
  std::uint32_t element_bytes = 0;
  std::uint64_t count = 0;
  friend auto operator<=>(const plan_key&, const plan_key&) = default;
};

/// The latest plans of one rank. A plan stays valid while somebody holds it.
class plan_cache {
 public:
  plan_cache(rank_t rank, rank_t ranks) noexcept : rank_{rank}, ranks_{ranks} {}
  /// Finds or makes the plan of an all_reduce.
  [[nodiscard]] result<std::shared_ptr<const schedule::plan>> all_reduce(const plan_key& key);

 private:
  static constexpr std::size_t capacity = 64;
  using entry = std::pair<plan_key, std::shared_ptr<const schedule::plan>>;
  rank_t rank_;
  rank_t ranks_;
  std::list<entry> recent_;  // most recently used first
  std::map<plan_key, std::list<entry>::iterator> index_;
};

}  // namespace chorale
