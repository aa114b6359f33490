// The ranks of one communicator among those of the epoch that it lives in: all of them, or those of a split.
//
// Children share their epoch's pairs and its guard; what they have of their own is the numbering of ranks,
// the plans, and a name that is mixed into the keys of their lanes, so that no message of one is taken for
// another's. Owned by the epoch's core; engine's thread.
#pragma once

#include <chorale/collective/plan_cache.hpp>
#include <chorale/collective/recent_calls.hpp>
#include <chorale/collective/selection.hpp>

#include <cstdint>
#include <vector>

namespace chorale {

class group {
 public:
  /// All ranks of an epoch, under their own numbers.
  group(rank_t rank, rank_t size, const selection_settings& settings, std::vector<std::uint32_t> hosts);
  /// Some of them: `members` are their numbers in the epoch of `size` ranks, in the order of the new numbers.
  /// `self`: this rank's number in the epoch, which is among them.
  group(std::uint64_t id, std::vector<rank_t> members, rank_t self, rank_t size,
        const selection_settings& settings, std::vector<std::uint32_t> hosts);
  group(const group&) = delete;
  group& operator=(const group&) = delete;

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] bool is_whole() const noexcept { return id_ == 0; }
  [[nodiscard]] rank_t rank() const noexcept { return rank_; }
  [[nodiscard]] rank_t size() const noexcept { return size_; }
  /// A member's number in the epoch.
  [[nodiscard]] rank_t in_epoch(rank_t member) const noexcept {
    return is_whole() ? member : members_[static_cast<std::size_t>(member)];
  }
  /// The number here of a rank of the epoch; no_rank for one that is no member.
  [[nodiscard]] rank_t member(rank_t in_epoch) const noexcept {
    if (is_whole()) return in_epoch;
    const auto index = static_cast<std::size_t>(in_epoch);  // may have come from a peer
    return in_epoch >= 0 && index < numbers_.size() ? numbers_[index] : no_rank;
  }
  /// What lanes are known by among all of the epoch.
  [[nodiscard]] std::uint64_t lane_key(std::uint64_t key) const noexcept { return lane_key(id_, key); }
  [[nodiscard]] static std::uint64_t lane_key(std::uint64_t id, std::uint64_t key) noexcept;
  /// The name of a child that its members make for themselves from what all know.
  [[nodiscard]] std::uint64_t child_id(std::uint64_t epoch, std::uint64_t ticket,
                                       std::int64_t colour) const noexcept;

  [[nodiscard]] const selection_settings& settings() const noexcept { return settings_; }
  [[nodiscard]] plan_cache& plans() noexcept { return plans_; }
  [[nodiscard]] recent_calls& recent() noexcept { return recent_; }
  [[nodiscard]] const std::vector<std::uint32_t>& hosts() const noexcept { return hosts_; }

  /// A member destroyed its communicator of this group; the epoch may well go on with it.
  void has_left(rank_t in_epoch) noexcept;
  [[nodiscard]] bool left(rank_t in_epoch) const noexcept {
    return left_count_ != 0 && left_[static_cast<std::size_t>(in_epoch)];
  }
  [[nodiscard]] bool anybody_left() const noexcept { return left_count_ != 0; }

  std::uint32_t lanes = 0;  ///< that are there and belong to it
  bool released = false;    ///< no communicator refers to it any more

 private:
  std::uint64_t id_ = 0;
  rank_t rank_;
  rank_t size_;
  std::vector<rank_t> members_;
  std::vector<rank_t> numbers_;
  selection_settings settings_;
  std::vector<std::uint32_t> hosts_;
  plan_cache plans_;
  recent_calls recent_;
  std::vector<bool> left_;
  rank_t left_count_ = 0;
};

}  // namespace chorale
