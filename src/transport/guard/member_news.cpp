// What a member learns, and what it concludes: states, deaths, leaving, silence, revokes.
#include <chorale/transport/guard/member.hpp>
#include <chorale/transport/guard/robust_words.hpp>
#include <chorale/transport/guard/watcher.hpp>

#include <algorithm>
#include <utility>

namespace chorale::guarding {
namespace {

using namespace std::chrono_literals;

/// How often an unregistered mate's pidfd is looked at: a time to join, not to run.
constexpr auto joining_look = 20ms;
/// How often bells are looked at where the sleep must poll and the bootstrap gave no eventfd.
constexpr auto silent_bell_look = 50ms;

/// Causes that lie with a process or the way to it, and not with one communicator's calls.
bool ends_other_communicators(errc cause) noexcept {
  return cause == errc::peer_lost || cause == errc::peer_unresponsive || cause == errc::link_lost ||
         cause == errc::protocol_error;
}

}  // namespace

void member::add_to(sleep_plan& plan) const {
  const auto& bell = segment_.bell(setup_.slot).bell;
  plan.wait_for(bell, bell.load());
  plan.wait_for_descriptor(setup_.bell_fd.get(), POLLIN);
  for (const auto& m : mates_) {
    if (m.own_process || !may_fail(of(m.info.rank).state)) continue;
    const auto value = m.word->word.load();
    switch (read_word(value)) {
      case word_state::unregistered:
        plan.no_later_than(clock::now() + joining_look);
        [[fallthrough]];
      case word_state::owned:
        plan.wait_for(m.word->word, value);
        break;
      case word_state::unowned:
        plan.kind = sleep_kind::poll;
        break;
      case word_state::released:
      case word_state::owner_died:
        break;
    }
    if (m.info.pidfd)
      plan.wait_for_descriptor(m.info.pidfd.get(), POLLIN);
    else
      plan.wait_for_descriptor(m.info.eof_fd.get(), POLLRDHUP);
  }
}

std::optional<clock::time_point> member::look(clock::time_point now, sleep_kind sleeping) {
  const auto sleeps = static_cast<std::uint32_t>(sleeping);
  if (line_.sleeps_in.load(std::memory_order_relaxed) != sleeps) line_.sleeps_in = sleeps;
  if (sleeping == sleep_kind::poll) drain_event(setup_.bell_fd.get());
  for (auto& m : mates_) look_at(m, sleeping);
  drain_outbox();
  for (auto& m : mates_)
    if (m.mail.flush()) m.to_ring = true;
  auto next = judge(now);
  settle();
  if (sleeping == sleep_kind::poll && !setup_.bell_fd && !mates_.empty())
    next = std::min(next.value_or(clock::time_point::max()), now + silent_bell_look);
  return next;
}

bool member::died(mate& m, sleep_kind sleeping) noexcept {
  auto& v = of(m.info.rank);
  if (m.own_process || !may_fail(v.state)) return false;
  const auto word = read_word(m.word->word.load());
  if (word == word_state::owner_died) return true;
  if (word == word_state::released) return false;
  if (word == word_state::owned && sleeping == sleep_kind::futex) {
    v.signal = death_signal::robust_futex;
    return false;
  }
  v.signal = m.info.pidfd    ? death_signal::pidfd
             : m.info.eof_fd ? death_signal::end_of_file
                             : death_signal::report;
  return m.process_gone();
}

void member::look_at(mate& m, sleep_kind sleeping) {
  auto& v = of(m.info.rank);
  // Death first, the line after it: a mate that leaves writes its line before it lets go of its words.
  const bool dead = died(m, sleeping);
  const auto line = m.line->state.load();
  const auto said = static_cast<member_state>(line & 0xff);
  read_mail(m);  // what it wrote before it went still counts
  if (m.revoked->phase.load() == 2) {
    auto notice = notice_of(static_cast<errc>(m.revoked->cause.load()), m.revoked->culprit.load());
    notice.origin = m.revoked->origin.load();
    notice.detail = m.revoked->detail.load();
    notice.lane = m.revoked->lane.load();
    notice.ticket = m.revoked->ticket.load();
    accept(notice, m.info.rank);
  }
  if (said == member_state::left)
    note_left(m.info.rank, m.line->left_ticket.load(), no_rank);
  else if (said == member_state::dying)
    note_death(m.info.rank, static_cast<std::int32_t>(line >> 8), setup_.self, no_rank);
  else if (dead)
    note_death(m.info.rank, 0, setup_.self, no_rank);
  else if (said == member_state::alive && v.state == member_state::absent)
    v.state = member_state::alive;
}

void member::read_mail(mate& m) {
  bool took = false;
  while (const auto bytes = m.mail.take()) {
    took = true;
    if (!handle(*bytes, m.info.rank)) blame_protocol(m.info.rank);
  }
  if (took && m.mail.writer_waits()) m.to_ring = true;
}

void member::note_left(rank_t who, std::uint64_t last_ticket, rank_t told_by) {
  auto& v = of(who);
  if (!may_fail(v.state)) return;
  v.state = member_state::left;
  frame f = blank(frame_kind::left);
  f.culprit = who;
  f.ticket = last_ticket;
  flood_links(f, told_by);
  if (v.as_mate == nullptr) flood_mates(f, told_by);
  sink_.on_left(who, last_ticket);
}

void member::note_death(rank_t who, std::int32_t detail, rank_t origin, rank_t told_by) {
  auto& v = of(who);
  if (who == setup_.self || !may_fail(v.state)) return;
  v.state = detail != 0 ? member_state::dying : member_state::dead;
  auto notice = notice_of(errc::peer_lost, who);
  notice.origin = origin;
  notice.detail = detail;
  frame f = blank(frame_kind::death);
  f.origin = origin;
  f.cause = notice.cause;
  f.culprit = who;
  f.detail = detail;
  flood_links(f, told_by);
  if (v.as_mate == nullptr) flood_mates(f, told_by);
  static_cast<void>(claim(notice));
  tell_others(notice);  // also of a second death, which is no cause here any more
}

void member::accept(const chorale::revoke& notice, rank_t told_by) {
  static_cast<void>(claim(notice));
  if (notice.culprit == no_rank || notice.culprit == setup_.self) return;
  auto& state = of(notice.culprit).state;
  if (notice.cause == errc::peer_lost)
    note_death(notice.culprit, notice.detail, notice.origin, told_by);
  else if (notice.cause == errc::peer_unresponsive && may_fail(state))
    state = member_state::silent;
}

void member::tell_others(const chorale::revoke& notice) {
  if (setup_.processes.empty() || notice.culprit == no_rank) return;
  watcher_->lost(setup_.processes[static_cast<std::size_t>(notice.culprit)], notice);
}

void member::note_process(std::uint64_t process, const chorale::revoke& why) {
  if (process == 0) return;
  for (rank_t rank = 0; rank < static_cast<rank_t>(setup_.processes.size()); ++rank) {
    if (setup_.processes[static_cast<std::size_t>(rank)] != process || !may_fail(of(rank).state)) continue;
    auto notice = notice_of(why.cause, rank);
    notice.origin = setup_.self;
    notice.detail = why.detail;
    accept(notice, no_rank);
  }
}

bool member::claim(const chorale::revoke& notice) noexcept {
  std::uint32_t unclaimed = 0;
  if (!revoked_.phase.compare_exchange_strong(unclaimed, 1)) return false;
  revoked_.cause = static_cast<std::int32_t>(notice.cause);
  revoked_.culprit = notice.culprit;
  revoked_.origin = notice.origin;
  revoked_.detail = notice.detail;
  revoked_.lane = notice.lane;
  revoked_.ticket = notice.ticket;
  revoked_.phase = 2;
  return true;
}

void member::settle() {
  const auto first = spread_ ? std::nullopt : cause();
  if (first) {
    spread_ = true;
    frame f = blank(frame_kind::revoke);
    f.cause = first->cause;
    f.culprit = first->culprit;
    f.origin = first->origin;
    f.detail = first->detail;
    f.lane = first->lane;
    f.ticket = first->ticket;
    flood_links(f, no_rank);
    for (auto& m : mates_) m.to_ring = true;  // they read it from the revoke line
    if (ends_other_communicators(first->cause)) tell_others(*first);
  }
  ring_mates();
  if (first) sink_.on_cause(*first);
}

void member::drain_outbox() {
  std::vector<chorale::revoke> leaving;
  {
    const std::lock_guard lock{outbox_mutex_};
    leaving.swap(outbox_);
  }
  for (const auto& notice : leaving) {
    frame f = blank(frame_kind::revoke);
    f.scope = revoke_scope::lane;
    f.sequence = ++lane_sequence_;
    f.lane = notice.lane;
    f.ticket = notice.ticket;
    f.cause = notice.cause;
    f.culprit = notice.culprit;
    spread_lane(f, no_rank);
  }
}

void member::spread_lane(const frame& notice, rank_t told_by) {
  flood_links(notice, told_by);
  flood_mates(notice, told_by);
  ring_mates();
  auto news = notice_of(notice.cause, notice.culprit);
  news.scope = revoke_scope::lane;
  news.lane = notice.lane;
  news.ticket = notice.ticket;
  news.origin = notice.origin;
  sink_.on_cause(news);
}

chorale::revoke member::notice_of(errc cause, rank_t culprit) const noexcept {
  chorale::revoke notice;
  notice.communicator = setup_.communicator;
  notice.epoch = setup_.epoch;
  notice.cause = cause;
  notice.culprit = culprit;
  return notice;
}

}  // namespace chorale::guarding
