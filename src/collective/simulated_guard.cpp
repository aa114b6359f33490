#include <chorale/collective/simulated_guard.hpp>
#include <chorale/transport/guard/neighbours.hpp>

namespace chorale {

simulated_guard::simulated_guard(simulated_network& net, simulated_guard_setup setup)
    : net_{net}, setup_{std::move(setup)}, knows_(setup_.members.size()) {
  net_.loop().add(*this);
}

simulated_guard::~simulated_guard() { net_.loop().remove(*this); }

void simulated_guard::send(time_point at, const news& what) {
  under_way_.emplace(at, what);
  net_.wake_at(at, what.to);
}

void simulated_guard::witnesses(rank_t witness, rank_t culprit, errc cause, std::uint64_t ticks) {
  news found;
  found.to = witness;
  found.noticed_here = true;
  found.notice.cause = cause;
  found.notice.culprit = culprit;
  found.notice.origin = witness;
  send(net_.after(ticks), found);
}

void simulated_guard::announces_leaving(rank_t who, std::uint64_t last_ticket, std::uint64_t ticks) {
  for (rank_t to = 0; to < static_cast<rank_t>(setup_.members.size()); ++to) {
    if (to == who) continue;
    news farewell;
    farewell.to = to;
    farewell.leaving = true;
    farewell.last_ticket = last_ticket;
    farewell.notice.culprit = who;
    send(net_.after(1 + net_.random().below(ticks)), farewell);
  }
  setup_.members[static_cast<std::size_t>(who)] = nullptr;
}

void simulated_guard::pass_on(rank_t from, const revoke& notice) {
  for (const rank_t to : control_neighbours(from, static_cast<rank_t>(setup_.members.size()))) {
    news heard;
    heard.to = to;
    heard.notice = notice;
    send(net_.after(1 + net_.random().below(setup_.hop_ticks)), heard);
  }
}

void simulated_guard::deliver(const news& what) noexcept {
  core* const member = setup_.members[static_cast<std::size_t>(what.to)];
  if (!member || net_.dead(what.to)) return;
  const auto culprit = static_cast<std::uint64_t>(what.notice.culprit);
  if (what.leaving) {
    net_.trace().note(net_.loop().now(), what.to, simulated_event::heard, culprit);
    net_.wake(what.to);
    return member->on_left(what.notice.culprit, what.last_ticket);
  }
  if (knows_[static_cast<std::size_t>(what.to)]) return;
  knows_[static_cast<std::size_t>(what.to)] = true;
  net_.trace().note(net_.loop().now(), what.to, simulated_event::noticed, culprit);
  if (what.noticed_here || !setup_.drops_forwards) pass_on(what.to, what.notice);
  net_.wake(what.to);
  member->on_cause(what.notice);
}

std::size_t simulated_guard::poll(std::size_t) noexcept {
  std::size_t moved = 0;
  for (; !under_way_.empty() && under_way_.begin()->first <= net_.loop().now(); ++moved) {
    const news next = under_way_.begin()->second;
    under_way_.erase(under_way_.begin());
    deliver(next);
  }
  for (std::size_t r = 0; r < setup_.members.size(); ++r) {
    core* const member = setup_.members[r];
    if (!member || knows_[r] || !member->cause() || net_.dead(static_cast<rank_t>(r))) continue;
    knows_[r] = true;
    const error& why = member->cause();
    if (why == errc::cancelled) continue;  // it was destroyed here: that is no failure of the others
    net_.trace().note(net_.loop().now(), static_cast<rank_t>(r), simulated_event::noticed,
                      static_cast<std::uint64_t>(why.culprit()));
    revoke notice;
    notice.cause = why.code();
    notice.culprit = why.culprit();
    notice.origin = static_cast<rank_t>(r);
    pass_on(static_cast<rank_t>(r), notice);
  }
  return moved;
}

}  // namespace chorale
