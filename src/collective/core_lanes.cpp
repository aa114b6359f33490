// Lanes: how their handles come and go, the places in their order, and what follows a lane that ended.
#include <chorale/collective/core.hpp>

#include <algorithm>
#include <utility>

namespace chorale {
namespace {

constexpr std::size_t remembered_keys = 65536;

}  // namespace

lane_state& core::lane_of(std::uint64_t key) {
  auto& slot = lanes_[key];
  if (!slot) {
    slot = std::make_unique<lane_state>();
    slot->key = slot->origin = key;
    slot->among = &everybody_;
  }
  return *slot;
}

/// The lane may be there already, for what came before its first handle; whose it is, is known from now on.
lane_state& core::adopt_lane(std::uint64_t name, group& among) {
  lane_state& lane = lane_of(name);
  if (lane.among != &among) {
    lane.among = &among;
    ++among.lanes;
    if (lane.ended_by.from != no_rank) lane.cause = told_cause(lane);
  }
  ++lane.handles;
  for (const rank_t gone : std::exchange(lane.left_before, {})) member_left(among, gone);
  return lane;
}

result<lane_state*> core::open_lane(group& among, std::uint64_t key) {
  if (among.is_whole() && key == default_lane) {
    ++default_lane_->handles;
    return default_lane_;
  }
  std::uint64_t name = among.lane_key(key);
  if (const auto renewed = renewed_.find(name); renewed != renewed_.end()) name = renewed->second;
  if (ended_keys_.contains(name))
    return error{errc::invalid_state,
                 "lane " + std::to_string(key) +
                     " was used and dropped in this epoch; keep its handle, or take another key"};
  return &adopt_lane(name, among);
}

result<lane_state*> core::renew_lane(lane_state& lane) {
  if (cause_pending()) act_on_cause();
  if (cause_) return revoked_error(*lane.among);
  const auto known = renewed_.find(lane.origin);
  const std::uint64_t newest = known == renewed_.end() ? lane.origin : known->second;
  if (newest != lane.key)
    return error{errc::invalid_state,
                 "this lane was reset through another handle; take a new one by its key"};
  // Who has not noticed yet must not go on with the old lane.
  if (!lane.ended()) revoke_lane(lane, lane.first ? lane.first->ticket_ : lane.next_ticket, errc::cancelled);
  // Every rank resets a lane as often as it ends, so all call what follows alike.
  const std::uint64_t generation = lane.generation + 1;
  lane_state& next = adopt_lane(group::lane_key(generation, lane.origin), *lane.among);
  next.origin = lane.origin;
  next.generation = generation;
  renewed_[lane.origin] = next.key;
  if (&lane == default_lane_) {
    default_lane_ = &next;
    ++next.handles;
    close_handle(lane);
  }
  close_handle(lane);
  return &next;
}

void core::close_handle(lane_state& lane) noexcept {
  if (--lane.handles != 0 || lane.running != 0) return;
  const std::uint64_t key = lane.key;
  for_links([key](pair& link) { link.forget_lane(key); });
  if (const auto renewed = renewed_.find(lane.origin); renewed != renewed_.end() && renewed->second == key) {
    renewed_.erase(renewed);
    remember_ended(lane.origin);
  }
  remember_ended(key);
  group* const child = lane.among->is_whole() ? nullptr : lane.among;
  lanes_.erase(key);
  if (child) {
    --child->lanes;
    drop_if_unused(*child);
  }
}

void core::remember_ended(std::uint64_t key) noexcept {
  if (!ended_keys_.insert(key).second) return;
  if (ended_order_.size() < remembered_keys) {
    ended_order_.push_back(key);
    return;
  }
  ended_keys_.erase(std::exchange(ended_order_[ended_next_], key));
  ended_next_ = (ended_next_ + 1) % remembered_keys;
}

std::uint64_t core::take_ticket(lane_state& lane, call& what) {
  ++lane.handles;
  if (what.kind == collective_kind::message) return take_message_ticket(lane, what);
  const std::uint64_t ticket = lane.next_ticket++;
  last_ticket_.store(ticket, std::memory_order_relaxed);
  return ticket;
}

void core::drop(lane_state& lane, std::uint64_t ticket, const call& what) noexcept {
  give_back_send(*lane.among, what);
  if (!cause_ && !lane.ended()) revoke_lane(lane, ticket, errc::dropped);
  close_handle(lane);
}

}  // namespace chorale
