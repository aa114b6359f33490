// Arrivals are judged, and what fails one lane ends that lane.
#include <chorale/collective/core.hpp>
#include <chorale/collective/message_execution.hpp>
#include <chorale/collective/window_side.hpp>

#include <utility>

namespace chorale {
namespace {

std::string who_called(const group& among, rank_t a, const signature& called_a, rank_t b,
                       const signature& called_b) {
  return "rank " + std::to_string(among.member(a)) + " called " + describe(called_a) + " where rank " +
         std::to_string(among.member(b)) + " called " + describe(called_b);
}

}  // namespace

// Arrivals.

in_flight* core::find(const lane_state& lane, rank_t from, const frame_header& header) noexcept {
  const bool message = (header.ticket & message_ticket) != 0;
  for (in_flight* op = lane.first; op; op = op->next_) {
    if (!message) {
      if (op->ticket_ == header.ticket) return op;
      continue;
    }
    if (header.kind == frame_kind::ready) {
      if (op->what_.send_number == header.ticket && lane.among->in_epoch(op->what_.peer) == from) return op;
    } else if (op->what_.receive_number == header.ticket && op->met_ == from) {
      return op;
    }
  }
  return nullptr;
}

verdict core::judge(rank_t from, const frame_header& header) noexcept {
  if (cause_) return verdict::refused;
  const bool message = (header.ticket & message_ticket) != 0;
  const auto known = lanes_.find(header.lane);
  if (known == lanes_.end()) {
    if (ended_keys_.contains(header.lane)) return verdict::refused;
    const bool comes = header.kind == frame_kind::eager || header.kind == frame_kind::announce;
    return message && comes ? arrived(lane_of(header.lane), {from, header.ticket, header.call})
                            : verdict::current;
  }
  lane_state& lane = *known->second;
  const rank_t member = lane.among->member(from);
  if (lane.ended() || member == no_rank) return verdict::refused;
  if (message) return judge_message(lane, from, header);
  if (header.ticket >= lane.short_from) return verdict::refused;
  if (const in_flight* op = find(lane, from, header)) {
    const signature expected = op->signed_for(member);
    if (expected == header.call) return verdict::current;
    mismatch(lane, header.ticket, expected, from, header.call);
    return verdict::refused;
  }
  if (header.ticket >= lane.next_ticket) return verdict::current;
  const auto& past = lane.history[header.ticket % lane.history.size()];
  if (past.ticket > header.ticket) return verdict::refused;  // long over
  if (past.ticket < header.ticket) return verdict::current;  // taken and not started yet
  const signature expected = signature_between(past.call, past.counts.get(), lane.among->rank(), member);
  if (!(expected == header.call)) mismatch(lane, header.ticket, expected, from, header.call);
  return verdict::refused;
}

bool core::judge_early(in_flight& op) noexcept {
  if (op.what_.kind == collective_kind::message) return judge_early_message(op);
  for (auto& link : pairs_) {
    const rank_t member = link ? op.among().member(link->peer()) : no_rank;
    if (member == no_rank) continue;
    const frame_header* differs = nullptr;
    const signature expected = op.signed_for(member);
    link->early(op.lane_->key, op.ticket_, [&](const frame_header& h) {
      if (!(h.call == expected)) differs = &h;
    });
    if (!differs) continue;
    const signature theirs = differs->call;  // the early arrivals go with the lane
    mismatch(*op.lane_, op.ticket_, expected, link->peer(), theirs);
    return false;
  }
  return true;
}

// Failure of a lane.

void core::end_lane(lane_state& lane, std::uint64_t ticket, error at_ticket,
                    const error& elsewhere) noexcept {
  if (lane.ended()) return;
  const bool known_here = lane.handles != 0;  // else it waits for its first handle, to say why it ended
  lane.handles += known_here ? 1 : 0;         // stays while we are in here
  lane.cause = at_ticket;
  lane.cause_ticket = ticket;
  while (lane.first) finish(*lane.first, lane.first->is_called(ticket) ? at_ticket : elsewhere);
  for_links([&](pair& link) { link.forget_lane(lane.key); });
  if (lane.messages) lane.messages->waiting.clear();
  if (lane.window) lane.window->lane_ended(as_seen_by(*lane.among, at_ticket));
  if (known_here) close_handle(lane);
}

void core::tell_lane_ended(const lane_state& lane, std::uint64_t ticket,
                           const lane_revoke_body& body) noexcept {
  for_members(*lane.among, [&](pair& link) { link.send_lane_revoke(lane.key, ticket, body); });
}

void core::revoke_lane(lane_state& lane, std::uint64_t ticket, errc cause) noexcept {
  if (cause_ || lane.ended()) return;
  lane_revoke_body body;
  body.cause = static_cast<std::int32_t>(cause);
  body.culprit = body.origin = rank_;
  tell_lane_ended(lane, ticket, body);
  const error why{cause};
  end_lane(lane, ticket, why, error{errc::revoked, "the lane ended: " + why.summary()});
}

void core::mismatch(lane_state& lane, std::uint64_t ticket, const signature& ours, rank_t other,
                    const signature& theirs) noexcept {
  lane_revoke_body body;
  body.cause = static_cast<std::int32_t>(errc::mismatch);
  body.culprit = other;
  body.origin = body.other = rank_;
  body.culprit_call = theirs;
  body.other_call = ours;
  const error why{errc::mismatch, who_called(*lane.among, rank_, ours, other, theirs), other};
  tell_lane_ended(lane, ticket, body);
  end_lane(lane, ticket, why,
           error{errc::revoked, "the lane ended: " + as_seen_by(*lane.among, why).summary(), other});
}

void core::lane_revoked(rank_t from, const frame_header& header, const lane_revoke_body& body) noexcept {
  if (cause_) return;
  const auto cause = static_cast<errc>(body.cause);
  if (cause == errc::peer_left && body.origin == body.culprit)
    for (const auto& child : children_)  // its own lane may have been reset since
      if (child->lane_key(default_lane) == header.lane) return member_left(*child, from);
  if (ended_keys_.contains(header.lane)) return;
  lane_state& lane = lane_of(header.lane);
  if (cause == errc::peer_left && body.origin == body.culprit) {
    // It speaks of itself: it has left this communicator.
    if (lane.among == &everybody_)
      lane.left_before.push_back(from);
    else
      member_left(*lane.among, from);
    return;
  }
  if (cause == errc::peer_left) return collectives_end(lane, header.ticket, body.culprit);
  if (!lane.ended()) lane.ended_by = {from, body};
  const error why = told_cause(lane);
  end_lane(lane, (header.ticket & local_ticket) != 0 ? 0 : header.ticket, why,
           error{errc::revoked, "the lane ended: " + as_seen_by(*lane.among, why).summary(), body.culprit});
}

/// What the rank that ended the lane said, in the numbers of the lane's communicator.
error core::told_cause(const lane_state& lane) {
  const auto& [from, body] = lane.ended_by;
  const auto cause = static_cast<errc>(body.cause);
  const std::string detail =
      cause == errc::mismatch
          ? who_called(*lane.among, body.other, body.other_call, body.culprit, body.culprit_call)
          : "rank " + std::to_string(lane.among->member(from)) + " ended the lane";
  return error{cause, detail, body.culprit};
}

// A rank that left.

void core::end_for_want_of(in_flight& op, rank_t gone) noexcept {
  if ((op.ticket_ & message_ticket) != 0) {
    if (static_cast<message_execution&>(op).goes_on_without(gone)) return;
    return finish(op, error{errc::peer_left, {}, gone});
  }
  // Ranks that wait for this one and not for the one that left learn of it here.
  lane_revoke_body body;
  body.cause = static_cast<std::int32_t>(errc::peer_left);
  body.culprit = gone;
  body.origin = rank_;
  const std::uint64_t ticket = op.ticket_;
  lane_state& lane = *op.lane_;
  tell_lane_ended(lane, ticket, body);
  collectives_end(lane, ticket, gone);
  finish(op, error{errc::peer_left, {}, gone});
}

void core::collectives_end(lane_state& lane, std::uint64_t ticket, rank_t gone) noexcept {
  if (lane.ended() || ticket >= lane.short_from) return;
  lane.short_from = ticket;
  lane.missing = gone;
  if (!lane.first) return;
  ++lane.handles;  // stays while we are in here
  for (in_flight* op = lane.first; op;) {
    in_flight* const next = op->next_;
    if (!(op->ticket_ & message_ticket) && op->ticket_ >= ticket)
      finish(*op, error{errc::peer_left, {}, gone});
    op = next;
  }
  close_handle(lane);
}

}  // namespace chorale
