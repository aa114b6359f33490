// The plans made for calls: found again by what they depend on, made when first asked for.
//
// Belongs to one rank's communicator and its thread. A plan stays valid while somebody holds it. Finding a
// plan allocates nothing; making one takes the generator's and the lowering's time.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/collective/selection.hpp>
#include <chorale/schedule/plan.hpp>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

namespace chorale {

struct plan_key {
  collective_kind kind = collective_kind::none;
  algorithm_kind algorithm = algorithm_kind::automatic;
  bool in_place = false;
  std::uint8_t element_bytes = 0;
  std::uint8_t accumulator_bytes = 0;
  rank_t root = 0;
  std::uint64_t count = 0;
  std::shared_ptr<const count_table> counts;
};

class plan_cache {
 public:
  /// `hosts` names the host of every rank, by any numbers; empty: one for all.
  plan_cache(rank_t rank, rank_t ranks, std::vector<std::uint32_t> hosts = {});
  [[nodiscard]] result<std::shared_ptr<const schedule::plan>> find(const plan_key& key);

 private:
  struct before {
    bool operator()(const plan_key& a, const plan_key& b) const noexcept;
  };
  static constexpr std::size_t capacity = 64;
  using entry = std::pair<plan_key, std::shared_ptr<const schedule::plan>>;
  [[nodiscard]] result<schedule::plan> make(const plan_key& key) const;

  rank_t rank_;
  rank_t ranks_;
  std::vector<std::uint32_t> hosts_;
  std::list<entry> recent_;  // most recently used first
  std::map<plan_key, std::list<entry>::iterator, before> index_;
};

}  // namespace chorale
