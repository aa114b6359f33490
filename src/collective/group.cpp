#include <chorale/collective/group.hpp>

#include <algorithm>
#include <utility>

namespace chorale {
namespace {

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) noexcept {
  // The finisher of SplitMix64: every bit of either reaches every bit of the outcome.
  std::uint64_t x = a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2));
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

bool hosts_of_several(const std::vector<std::uint32_t>& hosts) {
  std::vector<std::uint32_t> sorted = hosts;
  std::ranges::sort(sorted);
  const auto distinct = static_cast<std::size_t>(std::ranges::unique(sorted).begin() - sorted.begin());
  return distinct > 1 && distinct < hosts.size();
}

std::vector<std::uint32_t> hosts_of(const std::vector<rank_t>& members,
                                    const std::vector<std::uint32_t>& all) {
  std::vector<std::uint32_t> hosts;
  for (const rank_t m : members)
    if (!all.empty()) hosts.push_back(all[static_cast<std::size_t>(m)]);
  return hosts;
}

}  // namespace

group::group(rank_t rank, rank_t size, const selection_settings& settings, std::vector<std::uint32_t> hosts)
    : rank_{rank},
      size_{size},
      settings_{settings},
      hosts_{std::move(hosts)},
      plans_{rank_, size_, hosts_},
      left_(static_cast<std::size_t>(size)) {}

group::group(std::uint64_t id, std::vector<rank_t> members, rank_t self, rank_t size,
             const selection_settings& settings, std::vector<std::uint32_t> hosts)
    : id_{id},
      rank_{static_cast<rank_t>(std::ranges::find(members, self) - members.begin())},
      size_{static_cast<rank_t>(members.size())},
      members_{std::move(members)},
      numbers_(static_cast<std::size_t>(size), no_rank),
      settings_{settings},
      hosts_{hosts_of(members_, hosts)},
      plans_{rank_, size_, hosts_},
      left_(static_cast<std::size_t>(size)) {
  settings_.hosts_of_several = hosts_of_several(hosts_);
  for (rank_t r = 0; r < size_; ++r)
    numbers_[static_cast<std::size_t>(members_[static_cast<std::size_t>(r)])] = r;
}

std::uint64_t group::lane_key(std::uint64_t id, std::uint64_t key) noexcept {
  return id == 0 ? key : mixed(id, key);
}

std::uint64_t group::child_id(std::uint64_t epoch, std::uint64_t ticket, std::int64_t colour) const noexcept {
  const std::uint64_t id = mixed(mixed(mixed(id_, epoch), ticket), static_cast<std::uint64_t>(colour));
  return id != 0 ? id : 1;  // 0 is the epoch itself
}

void group::has_left(rank_t in_epoch) noexcept {
  auto gone = left_[static_cast<std::size_t>(in_epoch)];
  if (gone) return;
  left_[static_cast<std::size_t>(in_epoch)] = true;
  ++left_count_;
}

}  // namespace chorale
