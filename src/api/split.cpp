#include <chorale/api/communicator.hpp>
#include <chorale/collective/epoch.hpp>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace chorale {
namespace {

/// What every rank says: a colour and a key. The members of one colour, in their new order, by their numbers
/// in the parent.
std::vector<rank_t> members_of(std::int64_t colour, std::span<const std::int64_t> wishes) {
  std::vector<std::pair<std::int64_t, rank_t>> keyed;
  for (std::size_t r = 0; 2 * r < wishes.size(); ++r)
    if (wishes[2 * r] == colour) keyed.emplace_back(wishes[2 * r + 1], static_cast<rank_t>(r));
  std::ranges::sort(keyed);
  std::vector<rank_t> members;
  for (const auto& [key, rank] : keyed) members.push_back(rank);
  return members;
}

}  // namespace

struct communicator::split_wishes {
  std::array<std::int64_t, 2> mine;
  std::vector<std::int64_t> all;
};

// The call takes its place here, not where it is awaited.
task<std::optional<communicator>> communicator::split(std::int64_t colour, std::int64_t key, deadline limit) {
  auto wishes = std::make_unique<split_wishes>();
  wishes->mine = {colour, key};
  wishes->all.resize(2 * static_cast<std::size_t>(size()));
  described_call described = chorale::all_gather(wishes->mine, wishes->all);
  described.what.kind = collective_kind::split;
  // Every rank takes the same place for it, so all name the child alike.
  const std::uint64_t id = among().child_id(epoch_number(), next_ticket(), colour);
  return finish_split(current_, among(), id, std::move(wishes), place(described, limit));
}

task<std::optional<communicator>> communicator::finish_split(std::shared_ptr<epoch> shared, group& parent,
                                                             std::uint64_t id,
                                                             std::unique_ptr<split_wishes> wishes,
                                                             ticket placed) {
  as_result_of<ticket> asking = as_result(std::move(placed));
  auto asked = co_await std::move(asking);
  const std::int64_t colour = wishes->mine.front();
  if (!asked) {
    if (colour != no_colour && !forked()) shared->inside->refuse_group(id, parent);
    throw failure{std::move(asked).error()};
  }
  if (colour == no_colour) co_return std::nullopt;
  std::vector<rank_t> members = members_of(colour, wishes->all);
  for (rank_t& m : members) m = parent.in_epoch(m);
  co_return communicator{shared, shared->inside->add_group(id, std::move(members), parent)};
}

task<communicator> communicator::dup(deadline limit) { return whole_of(split(0, 0, limit)); }

task<communicator> communicator::whole_of(task<std::optional<communicator>> splitting) {
  std::optional<communicator> all = co_await std::move(splitting);
  co_return std::move(*all);
}

}  // namespace chorale
