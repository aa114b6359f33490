// Asking the guards of ranks that an operation has waited for too long.
#include <chorale/transport/guard/member.hpp>
#include <chorale/transport/guard/watcher.hpp>

#include <algorithm>

namespace chorale::guarding {

bool member::can_be_asked(rank_t rank) const noexcept {
  const auto& v = of(rank);
  const auto state = v.state.load();
  const bool own = rank == setup_.self || (v.as_mate != nullptr && v.as_mate->own_process);
  return !own && may_fail(state) && state != member_state::silent;
}

std::optional<clock::time_point> member::gather_waits(clock::time_point now) {
  const auto patience = watcher_->options().question_after;
  std::optional<clock::time_point> next;
  waits_.clear();
  std::vector<bool> named(static_cast<std::size_t>(setup_.size));
  pending_.for_each([&](clock::time_point since, std::uint64_t lane, std::uint64_t ticket, auto waits_for) {
    last_pending_ = now;
    if (since + patience > now) {
      next = std::min(next.value_or(since + patience), since + patience);
      return;
    }
    for (rank_t rank = 0; rank < setup_.size; ++rank) {
      if (!waits_for(rank) || named[static_cast<std::size_t>(rank)] || !can_be_asked(rank)) continue;
      named[static_cast<std::size_t>(rank)] = true;
      waits_.push_back({rank, lane, ticket});
    }
  });
  return next;
}

std::optional<clock::time_point> member::judge(clock::time_point now) {
  if (!listening_.load() || spread_) return std::nullopt;
  const auto patience = watcher_->options().question_after;
  // `pending` rings only a guard that does not listen, so a listening one looks of its own accord.
  auto next =
      std::min<clock::time_point>(now + patience / 2, gather_waits(now).value_or(clock::time_point::max()));
  const auto verdict = silence_.look(now, waits_);
  for (const auto& q : verdict.ask) ask(q);
  for (const auto& w : verdict.unresponsive) note_silence(w);
  if (verdict.look_again) next = std::min(next, *verdict.look_again);
  if (now - last_pending_ >= patience) {
    // Quiet: sleep without a deadline, unless an operation came between the look and this mark.
    listening_ = false;
    if (pending_.empty() || listening_.exchange(true)) return std::nullopt;
  }
  return next;
}

void member::ask(const silence::question& q) {
  frame f = blank(frame_kind::question);
  f.target = q.about.rank;
  f.sequence = ++question_number_;
  f.lane = q.about.lane;
  f.ticket = q.about.ticket;
  f.attempt = static_cast<std::uint8_t>(q.attempt);
  f.hops = most_hops;
  questions_sent_.fetch_add(1);
  route(f);
}

void member::note_silence(const silence::wait& wait) {
  auto notice = notice_of(errc::peer_unresponsive, wait.rank);
  notice.origin = setup_.self;
  notice.ticket = wait.ticket;
  notice.lane = wait.lane;
  accept(notice, no_rank);
}

}  // namespace chorale::guarding
