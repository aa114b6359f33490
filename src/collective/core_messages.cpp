// Messages: which receive takes which, and what comes before its receive.
//
// Without a tag, the n-th send to a rank meets the n-th receive that names the sender: both know the number,
// so the receiver can speak first. Every other message is named by its sender alone; here the oldest receive
// that has begun and may have it takes it, else it waits in the lane's box and its bytes in the pair. A
// receive from anybody may take messages without a tag too, the next of a sender that no receive has claimed.
#include <chorale/collective/core.hpp>
#include <chorale/collective/loopback.hpp>
#include <chorale/collective/message_execution.hpp>

#include <algorithm>
#include <cassert>
#include <utility>

namespace chorale {
namespace {

/// Sends to one rank that may be under way: what bounds the announcements that it has to remember.
constexpr std::uint32_t most_sends = 16384;

bool is_tagged(std::uint64_t number) noexcept { return (number & tagged_ticket) != 0; }

bool has_turn(const message_box& box, const message_box::arrival& m) noexcept {
  return is_tagged(m.number) || plain_number(m.number) == box.claimed[static_cast<std::size_t>(m.from)] + 1;
}

/// A send or receive that both sides number.
bool sends_untagged(const call& what) noexcept { return what.sending && what.tag == 0; }
bool receives_next_untagged(const call& what) noexcept {
  return what.receiving && what.receive_tag == 0 && what.source != any_source;
}

}  // namespace

message_box& core::messages_of(lane_state& lane) {
  if (!lane.messages) lane.messages = std::make_unique<message_box>(size_);
  return *lane.messages;
}

void core::make_own_link() {
  if (own_link_ || closed_) return;
  own_link_ = std::make_unique<loopback>(rank_, loop_.io().doorbell(), static_cast<arrival_judge&>(*this));
  links_[static_cast<std::size_t>(rank_)] = &own_link_->link();
}

bool core::all_departed(const group& among) const noexcept {
  for (rank_t r = 0; r < among.size(); ++r)
    if (r != among.rank() && !departed(among.in_epoch(r), among)) return false;
  return among.size() > 1;
}

// The call.

error core::refusal(const lane_state& lane, const call& what) const {
  if (what.kind != collective_kind::message || !what.sending) return {};
  if (sends_[static_cast<std::size_t>(lane.among->in_epoch(what.peer))] < most_sends) return {};
  return error{
      errc::too_many_messages,
      std::to_string(most_sends) + " sends to rank " + std::to_string(what.peer) + " are under way already",
      what.peer};
}

std::uint64_t core::take_message_ticket(lane_state& lane, call& what) {
  message_box& box = messages_of(lane);
  what.send_number = what.receive_number = 0;
  if (what.sending) {
    const rank_t to = lane.among->in_epoch(what.peer);
    ++sends_[static_cast<std::size_t>(to)];
    if (to == rank_) make_own_link();
    if (sends_untagged(what)) {
      what.send_number = message_ticket | ++box.sent[static_cast<std::size_t>(to)];
      box.unstarted.push_back({to, what.send_number});
    }
  }
  if (receives_next_untagged(what)) {
    const rank_t from = lane.among->in_epoch(what.source);
    if (from == rank_) make_own_link();
    what.receive_number = message_ticket | ++box.claimed[static_cast<std::size_t>(from)];
    if (!box.waiting.empty()) claim(lane, from, what.receive_number);
  }
  if (what.send_number != 0) return what.send_number;
  return what.receive_number != 0 ? what.receive_number : message_ticket | local_ticket | ++box.called;
}

void core::give_back_send(const group& among, const call& what) noexcept {
  if (what.kind == collective_kind::message && what.sending)
    --sends_[static_cast<std::size_t>(among.in_epoch(what.peer))];
}

/// A receive that names its sender has this message: if it is here already, nobody else may take it, and the
/// sender's next may be taken instead.
void core::claim(lane_state& lane, rank_t from, std::uint64_t number) noexcept {
  auto& waiting = lane.messages->waiting;
  const auto here = std::ranges::find_if(
      waiting, [&](const message_box::arrival& m) { return m.from == from && m.number == number; });
  if (here == waiting.begin())
    waiting.pop_front();
  else if (here != waiting.end())
    waiting.erase(here);
  if (!waiting.empty()) serve_next(lane, from);
}

/// The ticket is used: what only a start tells.
void core::begin_message(in_flight& op) {
  message_box& box = messages_of(*op.lane_);
  if (sends_untagged(op.what_)) {
    const rank_t to = op.among().in_epoch(op.what_.peer);
    const auto held = std::ranges::find_if(box.unstarted, [&](const message_box::sending& s) {
      return s.to == to && s.number == op.what_.send_number;
    });
    if (held != box.unstarted.end()) box.unstarted.erase(held);
  } else if (op.what_.sending) {
    op.what_.send_number = message_ticket | tagged_ticket | ++box.tagged;
  }
  if (receives_next_untagged(op.what_)) op.met_ = op.among().in_epoch(op.what_.source);
}

void core::end_early(in_flight& op, errc cause) noexcept {
  if (op.meets_nothing_yet() && !op.what_.sending && op.what_.source == any_source)
    finish(op, error{cause});
  else
    revoke_lane(*op.lane_, op.ticket_, cause);
}

// Which receive takes which message.

bool core::may_take(const in_flight& op, const message_box::arrival& m) noexcept {
  const call& what = op.what_;
  if (what.kind != collective_kind::message || !op.meets_nothing_yet()) return false;
  if (what.source != any_source && op.among().in_epoch(what.source) != m.from) return false;
  return what.receive_tag == any_tag || static_cast<std::uint32_t>(what.receive_tag) == m.call.root;
}

in_flight* core::taker_of(const lane_state& lane, const message_box::arrival& m) const noexcept {
  if (!has_turn(*lane.messages, m)) return nullptr;
  in_flight* op = lane.first;
  while (op && !may_take(*op, m)) op = op->next_;
  return op;
}

/// False when the message does not fit: the lane has ended.
bool core::meet(in_flight& op, const message_box::arrival& m) noexcept {
  op.what_.receive_number = m.number;
  op.met_ = m.from;
  lane_state& lane = *op.lane_;
  if (!is_tagged(m.number)) ++lane.messages->claimed[static_cast<std::size_t>(m.from)];
  const signature ours = op.received_as();
  if (!fits(m.call, ours)) {
    mismatch(lane, m.number, ours, m.from, m.call);
    return false;
  }
  static_cast<message_execution&>(op).meet(m.call);
  return true;
}

/// What a rank sent out of turn may have its turn now. The lane is held by the caller.
void core::serve_next(lane_state& lane, rank_t from) noexcept {
  message_box& box = *lane.messages;
  while (!lane.ended()) {
    const auto next = std::ranges::find_if(box.waiting, [&](const message_box::arrival& m) {
      return m.from == from && !is_tagged(m.number) && has_turn(box, m);
    });
    if (next == box.waiting.end()) return;
    in_flight* const taker = taker_of(lane, *next);
    if (!taker) return;
    const message_box::arrival message = *next;
    box.waiting.erase(next);
    if (!meet(*taker, message)) return;
  }
}

void core::look_for_message(message_execution& op) {
  lane_state& lane = op.lane();
  message_box& box = *lane.messages;
  const auto found = std::ranges::find_if(
      box.waiting, [&](const message_box::arrival& m) { return has_turn(box, m) && may_take(op, m); });
  if (found == box.waiting.end()) return;
  const message_box::arrival message = *found;
  box.waiting.erase(found);
  ++lane.handles;  // stays while we are in here
  if (meet(op, message) && !is_tagged(message.number)) serve_next(lane, message.from);
  close_handle(lane);
}

verdict core::arrived(lane_state& lane, const message_box::arrival& m) noexcept {
  message_box& box = messages_of(lane);
  if (!is_tagged(m.number) && plain_number(m.number) <= box.claimed[static_cast<std::size_t>(m.from)])
    return verdict::current;  // its receive has a ticket and is not started
  in_flight* const taker = taker_of(lane, m);
  if (!taker) {
    box.waiting.push_back(m);
    return verdict::current;
  }
  if (!meet(*taker, m)) return verdict::refused;  // else it holds the lane: the bytes are still to come
  if (!is_tagged(m.number)) serve_next(lane, m.from);
  return lane.ended() ? verdict::refused : verdict::current;
}

// Judgement.

verdict core::judge_message(lane_state& lane, rank_t from, const frame_header& header) noexcept {
  const bool for_sender = header.kind == frame_kind::ready;
  if (in_flight* op = find(lane, from, header)) {
    const signature ours = for_sender ? op->signature_ : op->received_as();
    if (!(for_sender ? fits(ours, header.call) : fits(header.call, ours))) {
      mismatch(lane, header.ticket, ours, from, header.call);
      return verdict::refused;
    }
    if (!for_sender) static_cast<message_execution*>(op)->expect(header.call);
    return verdict::current;
  }
  if (!for_sender) {
    if (header.kind == frame_kind::data) return verdict::current;  // the pair says what is wrong with it
    return arrived(lane, {from, header.ticket, header.call});
  }
  // A receive with room for more than the message speaks first and may be answered before that is heard.
  if (is_tagged(header.ticket)) return verdict::refused;
  const message_box& box = messages_of(lane);
  const bool to_come = plain_number(header.ticket) > box.sent[static_cast<std::size_t>(from)] ||
                       std::ranges::any_of(box.unstarted, [&](const message_box::sending& s) {
                         return s.to == from && s.number == header.ticket;
                       });
  return to_come ? verdict::current : verdict::refused;
}

bool core::judge_early_message(in_flight& op) noexcept {
  const auto differs = [&](rank_t peer, std::uint64_t number, const signature& ours, bool as_sender) {
    const frame_header* other = nullptr;
    link_to(peer).early(op.lane_->key, number, [&](const frame_header& h) {
      if ((h.kind == frame_kind::ready) != as_sender) return;
      if (!(as_sender ? fits(ours, h.call) : fits(h.call, ours))) other = &h;
    });
    if (!other) return false;
    const signature theirs = other->call;  // the early arrivals go with the lane
    mismatch(*op.lane_, number, ours, peer, theirs);
    return true;
  };
  const call& what = op.what_;
  if (sends_untagged(what) && differs(op.among().in_epoch(what.peer), what.send_number, op.signature_, true))
    return false;
  return !receives_next_untagged(what) || !differs(op.met_, what.receive_number, op.received_as(), false);
}

}  // namespace chorale
