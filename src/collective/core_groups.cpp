// Children of the epoch: groups that share its pairs and its guard.
#include <chorale/collective/core.hpp>

#include <algorithm>
#include <utility>

namespace chorale {

group& core::add_group(std::uint64_t id, std::vector<rank_t> members, const group& parent) {
  return *children_.emplace_back(
      std::make_unique<group>(id, std::move(members), rank_, size_, parent.settings(), everybody_.hosts()));
}

void core::leave_group(group& child) noexcept {
  std::vector<lane_state*> busy;
  for (auto& [key, lane] : lanes_)
    if (lane->among == &child && lane->first) busy.push_back(lane.get());
  for (lane_state* lane : busy) revoke_lane(*lane, lane->first->ticket(), errc::cancelled);
  tell_departure(child.lane_key(default_lane), child);
  child.released = true;
  drop_if_unused(child);
}

void core::refuse_group(std::uint64_t id, const group& parent) noexcept {
  tell_departure(group::lane_key(id, default_lane), parent);
}

/// On a lane whose members take it for news of the whole communicator: see lane_revoked.
void core::tell_departure(std::uint64_t lane, const group& to) noexcept {
  if (cause_ || closed_) return;
  lane_revoke_body body;
  body.cause = static_cast<std::int32_t>(errc::peer_left);
  body.culprit = body.origin = rank_;
  for_members(to, [&](pair& link) { link.send_lane_revoke(lane, 0, body); });
}

void core::orphan() noexcept {
  revoke_all(error{errc::revoked, "the communicator that this one was split from was destroyed"});
}

void core::drop_if_unused(group& child) noexcept {
  if (!child.released || child.lanes != 0) return;
  std::erase_if(children_, [&](const auto& c) { return c.get() == &child; });
}

/// Everything it sent in this group has been taken in before this was.
void core::member_left(group& child, rank_t in_epoch) noexcept {
  child.has_left(in_epoch);
  std::vector<in_flight*> stuck;
  for (auto& [key, lane] : lanes_)
    for (in_flight* op = lane->first; op; op = op->next_)
      if (lane->among == &child && op->needs(in_epoch)) stuck.push_back(op);
  for (in_flight* op : stuck)
    if (!op->finished_) end_for_want_of(*op, in_epoch);
  windows_go_without(in_epoch, &child);
}

error core::as_seen_by(const group& among, error why) {
  if (among.is_whole() || why.culprit() == no_rank) return why;
  const rank_t member = among.member(why.culprit());
  std::string detail = why.detail();
  if (member == no_rank)
    detail = "rank " + std::to_string(why.culprit()) + " of the communicator that this one was split from" +
             (detail.empty() ? "" : "; " + detail);
  error translated{why.code(), std::move(detail), member};
  translated.with_ticket(why.ticket());
  return translated;
}

}  // namespace chorale
