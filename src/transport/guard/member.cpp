#include <chorale/transport/guard/fork_mark.hpp>
#include <chorale/transport/guard/member.hpp>
#include <chorale/transport/guard/watcher.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace chorale::guarding {
namespace {

[[noreturn]] void refuse(const std::string& what, rank_t rank) {
  throw failure{error{errc::invalid_argument, "joining the guard: " + what, rank}};
}

void* private_segment(const membership_setup& setup) {
  void* words = std::aligned_alloc(64, guard_segment::bytes(setup.slots));
  if (words == nullptr) throw failure{error{errc::out_of_memory, "the guard's words"}};
  std::memset(words, 0, guard_segment::bytes(setup.slots));
  static_cast<void>(guard_segment::initialise(words, setup.slots, setup.epoch, setup.nonce));
  return words;
}

}  // namespace

member::member(std::shared_ptr<watcher> owner, membership_setup setup, guard_sink& sink)
    : watcher_{std::move(owner)},
      setup_{std::move(setup)},
      sink_{sink},
      born_in_{fork_generation()},
      private_words_{(check_setup(), setup_.segment == nullptr ? private_segment(setup_) : nullptr)},
      segment_{guard_segment::open(private_words_ ? private_words_.get() : setup_.segment, setup_.slots,
                                   setup_.epoch, setup_.nonce)
                   .value()},
      line_{segment_.member(setup_.slot)},
      revoked_{segment_.revoked(setup_.slot)},
      views_(static_cast<std::size_t>(setup_.size)),
      pending_{setup_.size},
      silence_{setup_.size, watcher_->options()} {
  make_mates();
  make_links();
}

void member::check_setup() const {
  const auto& s = setup_;
  if (s.size < 1 || s.self < 0 || s.self >= s.size) refuse("rank and size do not fit", s.self);
  if (s.slots < 1 || s.slot >= s.slots) refuse("slot and slots do not fit", s.self);
  if (s.segment == nullptr && (!s.mates.empty() || s.slots != 1))
    refuse("host-mates need a shared segment", s.self);
  if (reinterpret_cast<std::uintptr_t>(s.segment) % 64 != 0)
    refuse("the segment must be 64-byte aligned", s.self);
  if (!s.processes.empty() && s.processes.size() != static_cast<std::size_t>(s.size))
    refuse("processes must name every rank or none", s.self);
  std::vector<char> seen(static_cast<std::size_t>(s.size));
  std::vector<char> slot_seen(s.slots);
  auto once = [&](rank_t rank) {
    if (rank < 0 || rank >= s.size || rank == s.self || seen[static_cast<std::size_t>(rank)]++ != 0)
      refuse("a member is named twice or is out of range", rank);
  };
  slot_seen[s.slot] = 1;
  for (const auto& m : s.mates) {
    once(m.rank);
    if (m.slot >= s.slots || slot_seen[m.slot]++ != 0)
      refuse("a slot is named twice or is out of range", m.rank);
  }
  for (const auto& l : s.links) {
    once(l.rank);
    if (!l.socket) refuse("a control link without a socket", l.rank);
  }
}

void member::make_mates() {
  // The watch thread empties it and must never wait in doing so.
  if (setup_.bell_fd)
    ::fcntl(setup_.bell_fd.get(), F_SETFL, ::fcntl(setup_.bell_fd.get(), F_GETFL) | O_NONBLOCK);
  for (auto& info : setup_.mates) {
    const auto slot = info.slot;
    const bool own = info.pid == ::getpid();
    if (!own && !info.pidfd && info.pid > 0) info.pidfd = owned_fd{pidfd_open(info.pid)};
    const auto signal = own           ? death_signal::own_process
                        : info.pidfd  ? death_signal::pidfd
                        : info.eof_fd ? death_signal::end_of_file
                                      : death_signal::report;
    mates_.push_back(mate{std::move(info), own,
                          mailbox_edge{segment_.mail(setup_.slot, slot), segment_.mail(slot, setup_.slot)},
                          &segment_.member(slot), &segment_.bell(slot), &segment_.revoked(slot),
                          &segment_.robust(slot, setup_.slot)});
    auto& m = mates_.back();
    of(m.info.rank).as_mate = &m;
    of(m.info.rank).signal = signal;
    if (!own)
      announcer_.watchers.push_back(
          {&segment_.robust(setup_.slot, slot), m.bell, m.line, m.info.bell_fd.get()});
  }
  announcer_.own = &line_;
  announcer_.process = ::getpid();
  announcer_.last_words = blank(frame_kind::death);
  announcer_.last_words.culprit = setup_.self;
  announcer_.last_words.cause = errc::peer_lost;
}

void member::make_links() {
  for (auto& peer : setup_.links) {
    auto& exit = announcer_.links.emplace_back();
    auto& link = links_.emplace_back(peer.rank, watcher_->next_link_id(), std::move(peer.socket), exit,
                                     watcher_->options().link_timeout);
    of(peer.rank).as_link = &link;
    of(peer.rank).signal = death_signal::control_link;
  }
}

void member::enter() {
  entered_ = true;
  line_.pid = ::getpid();
  line_.rank = setup_.self;
  line_.epoch = setup_.epoch;
  of(setup_.self).state = member_state::alive;
  for (auto& v : views_)
    if (v.as_mate == nullptr) v.state = member_state::alive;
  line_.state = static_cast<std::uint32_t>(member_state::alive);
  for (const auto& m : mates_)
    if (!m.own_process) watcher_->own(segment_.robust(setup_.slot, m.info.slot));
  announcement_.emplace(announcer_);
  for (const auto& link : links_) watcher_->watch(link);
  for (auto& m : mates_) m.to_ring = true;
  ring_mates();
}

member::~member() {
  if (!inherited()) {
    const auto lock = watcher_->lock();
    if (entered_) {
      static_cast<void>(leave_locked(line_.last_started.load()));
      say_goodbye();
    }
    withdraw();
  }
}

void member::say_goodbye() noexcept {
  const frame_bytes bytes = encode(blank(frame_kind::goodbye));
  for (auto& link : links_) {
    link.send(bytes);
    // A link so full that 64 bytes do not go out belongs to a peer that reads nothing; it is given one
    // chance.
    if (link.waits_to_write()) {
      pollfd room{link.socket(), POLLOUT, 0};
      ::poll(&room, 1, 20);
      link.flush();
    }
    // Closing over unread bytes would reset the connection and could overtake the goodbye.
    while (link.receive()) {
    }
  }
}

void member::withdraw() noexcept {
  announcement_.reset();
  watcher_->remove(*this);
  for (auto& link : links_) {
    watcher_->unwatch(link);
    link.close();
  }
}

bool member::inherited() const noexcept { return born_in_ != fork_generation(); }

result<void> member::leave(std::uint64_t last_ticket) {
  if (inherited()) return errc::forked;
  const auto lock = watcher_->lock();
  return leave_locked(last_ticket);
}

result<void> member::leave_locked(std::uint64_t last_ticket) {
  if (left_) return {};
  left_ = true;
  line_.left_ticket = last_ticket;
  auto alive = static_cast<std::uint32_t>(member_state::alive);
  line_.state.compare_exchange_strong(alive, static_cast<std::uint32_t>(member_state::left));
  for (const auto& m : mates_)
    if (!m.own_process) watcher_->disown(segment_.robust(setup_.slot, m.info.slot));
  frame f = blank(frame_kind::left);
  f.culprit = setup_.self;
  f.ticket = last_ticket;
  flood_links(f, no_rank);
  for (auto& m : mates_) m.to_ring = true;
  ring_mates();
  return {};
}

result<void> member::revoke(chorale::revoke notice) {
  if (inherited()) return errc::forked;
  if (notice.cause == errc::ok || (notice.culprit != no_rank && !in_range(notice.culprit)))
    return error{errc::invalid_argument, "revoke: a cause and a member or no_rank are needed",
                 notice.culprit};
  notice.communicator = setup_.communicator;
  notice.epoch = setup_.epoch;
  notice.origin = setup_.self;
  if (notice.scope == revoke_scope::lane) {
    const std::lock_guard lock{outbox_mutex_};
    outbox_.push_back(notice);
  } else if (!claim(notice)) {
    return {};
  }
  watcher_->bell().ring();
  return {};
}

std::optional<chorale::revoke> member::cause() const noexcept {
  if (revoked_.phase.load() != 2) return std::nullopt;
  auto notice = notice_of(static_cast<errc>(revoked_.cause.load()), revoked_.culprit.load());
  notice.origin = revoked_.origin.load();
  notice.detail = revoked_.detail.load();
  notice.ticket = revoked_.ticket.load();
  notice.lane = revoked_.lane.load();
  return notice;
}

void member::started(std::uint64_t ticket) noexcept {
  if (!inherited()) line_.last_started.store(ticket, std::memory_order_relaxed);
}

pending_id member::pending(std::uint64_t lane, std::uint64_t ticket, std::span<const rank_t> waits_for,
                           clock::time_point since) noexcept {
  const auto id = pending_.add(lane, ticket, waits_for, since);
  if (!listening_.load() && !inherited() && !listening_.exchange(true)) watcher_->bell().ring();
  return id;
}

call_state member::last_answer(rank_t rank) const noexcept {
  return in_range(rank) ? of(rank).answer.load() : call_state::unknown;
}

member_state member::state_of(rank_t rank) const noexcept {
  return in_range(rank) ? of(rank).state.load() : member_state::absent;
}

death_signal member::signal_for(rank_t rank) const noexcept {
  if (rank == setup_.self) return death_signal::own_process;
  return in_range(rank) ? of(rank).signal.load() : death_signal::report;
}

bool member::gone(rank_t rank) const noexcept {
  if (!in_range(rank) || rank == setup_.self) return false;
  const auto& v = of(rank);
  if (const mate* m = v.as_mate) {
    return !m->own_process && m->process_gone();
  }
  // A process of another host has nothing of this host mapped: that it is dead is enough.
  return v.link_ended.load() || v.state.load() == member_state::dead;
}

guard_counters member::counters() const noexcept {
  return {foreign_frames_.load(), unroutable_frames_.load(), questions_sent_.load(), answers_sent_.load()};
}

}  // namespace chorale::guarding
