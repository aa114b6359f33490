// What a member does with the frames that arrive, and with the links they arrive on.
#include <chorale/transport/guard/member.hpp>
#include <chorale/transport/guard/watcher.hpp>

namespace chorale::guarding {

bool member::handle(const frame_bytes& bytes, rank_t from) {
  const auto f = decode(bytes);
  if (!f) return false;
  if (f->epoch != setup_.epoch || f->nonce != setup_.nonce) {
    foreign_frames_.fetch_add(1);
    return true;
  }
  auto member_or_none = [this](rank_t r) { return r == no_rank || in_range(r); };
  if (!in_range(f->origin) || !member_or_none(f->culprit) || !member_or_none(f->target)) return false;
  switch (f->kind) {
    case frame_kind::revoke:
      if (f->cause == errc::ok) return false;
      handle_revoke(*f, from);
      return true;
    case frame_kind::question:
    case frame_kind::answer:
      if (f->target == no_rank) return false;
      handle_question(*f);
      return true;
    case frame_kind::left:
    case frame_kind::death:
      if (f->culprit == no_rank) return false;
      if (f->culprit == setup_.self) return true;  // what others think of us is no news to us
      if (f->kind == frame_kind::left)
        note_left(f->culprit, f->ticket, from);
      else
        note_death(f->culprit, f->detail, f->origin, from);
      return true;
    case frame_kind::goodbye:
      if (auto* link = of(from).as_link) link->note_goodbye();
      return true;
  }
  return false;
}

void member::handle_revoke(const frame& f, rank_t from) {
  if (f.scope == revoke_scope::all) {
    auto notice = notice_of(f.cause, f.culprit);
    notice.origin = f.origin;
    notice.detail = f.detail;
    notice.lane = f.lane;
    notice.ticket = f.ticket;
    accept(notice, from);
    return;
  }
  // Every edge keeps the order and every member forwards in the order of its first receipts, so the first
  // receipts of one origin's revokes come in the order of their numbers: the highest seen tells new from old.
  auto& seen = of(f.origin).last_sequence;
  if (f.origin == setup_.self || f.sequence <= seen) return;
  seen = f.sequence;
  spread_lane(f, from);
}

void member::handle_question(const frame& f) {
  if (f.target != setup_.self) {
    if (f.hops == 0) {
      unroutable_frames_.fetch_add(1);
      return;
    }
    frame onward = f;
    --onward.hops;
    route(onward);
    return;
  }
  if (f.kind == frame_kind::answer) {
    silence_.heard(f.origin, clock::now());
    of(f.origin).answer = f.call;
    return;
  }
  if (f.origin != setup_.self) reply_to(f);
}

void member::reply_to(const frame& question) {
  frame reply = blank(frame_kind::answer);
  reply.target = question.origin;
  reply.sequence = question.sequence;
  reply.attempt = question.attempt;
  reply.hops = most_hops;
  reply.lane = question.lane;
  reply.ticket = question.ticket;
  reply.call = sink_.state_of(question.lane, question.ticket);
  answers_sent_.fetch_add(1);
  route(reply);
}

void member::blame_protocol(rank_t culprit) {
  auto notice = notice_of(errc::protocol_error, culprit);
  notice.origin = setup_.self;
  static_cast<void>(claim(notice));
}

control_link* member::find_link(std::uint64_t id) noexcept {
  for (auto& link : links_)
    if (link.id() == id) return &link;
  return nullptr;
}

void member::attend(control_link& link) {
  if (link.state() == control_link::condition::closed) return;
  link.flush();
  bool sound = true;
  while (sound) {
    const auto bytes = link.receive();
    if (!bytes) break;
    sound = handle(*bytes, link.rank());
  }
  if (!sound) blame_protocol(link.rank());
  conclude(link);
  settle();  // a peer that sent nonsense is told so before its link closes
  if (sound && link.state() == control_link::condition::open) {
    watcher_->update(link);
  } else {
    watcher_->unwatch(link);
    link.close();
  }
}

void member::conclude(control_link& link) {
  auto& v = of(link.rank());
  if (link.state() == control_link::condition::ended) {
    v.link_ended = true;
    note_death(link.rank(), 0, setup_.self, no_rank);
  } else if (link.state() == control_link::condition::broken && may_fail(v.state)) {
    auto notice = notice_of(errc::link_lost, link.rank());
    notice.origin = setup_.self;
    notice.detail = link.os_error();
    static_cast<void>(claim(notice));
  }
}

}  // namespace chorale::guarding
