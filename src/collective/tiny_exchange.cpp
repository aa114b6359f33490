#include <chorale/collective/core.hpp>
#include <chorale/collective/tiny_exchange.hpp>
#include <chorale/transport/shm_wire.hpp>

#include <cstddef>
#include <cstring>

namespace chorale {
namespace {

/// Looks at each missing line before the operation is left to the engine: about two microseconds.
constexpr int looks = 128;

template <class Seat, class Member>
Seat& seat_of(Member& member, std::size_t offset) noexcept {
  return *reinterpret_cast<Seat*>(reinterpret_cast<std::byte*>(&member) - offset);
}

}  // namespace

tiny_exchange::tiny_exchange(rank_t ranks)
    : seats_{std::make_unique<seat[]>(static_cast<std::size_t>(ranks))} {
  for (rank_t r = 0; r < ranks; ++r) seats_[static_cast<std::size_t>(r)].home = this;
}

void tiny_exchange::begin() {
  bytes_ = what().bytes();
  ranks_ = among().size();
  missing_ = static_cast<std::uint32_t>(ranks_) - 1;
  for (rank_t r = 0; r < ranks_; ++r) seats_[static_cast<std::size_t>(r)].here = false;
  seat& mine = seats_[static_cast<std::size_t>(among().rank())];
  mine.here = true;
  if (bytes_ != 0 && how_.scales())
    how_.scale(mine.value, what().in, what().count, what());
  else if (bytes_ != 0)
    std::memcpy(mine.value, what().in, bytes_);
  write_lines();
  const bool spin = owner().loop().spin_budget() != duration::zero();
  for (int i = 0; i < (spin ? looks : 1) && missing_ != 0 && !finished(); ++i) {
    for (rank_t r = 0; r < ranks_ && !finished(); ++r)
      if (!seats_[static_cast<std::size_t>(r)].here && look(r)) arrived();
    if (owner().cause_pending()) break;
  }
  if (finished()) return;
  if (missing_ == 0) return fold();
  await_rest();
}

void tiny_exchange::write_lines() noexcept {
  tiny_line line;
  line.lane = lane().key;
  line.ticket = ticket();
  line.call = *pack(signed_as());
  line.stamp = tiny_line::make_stamp(0, 0, static_cast<std::uint8_t>(bytes_));
  const seat& mine = seats_[static_cast<std::size_t>(among().rank())];
  if (bytes_ != 0) std::memcpy(line.payload, mine.value, bytes_);
  for (rank_t r = 0; r < ranks_; ++r) {
    if (r == among().rank() || link_to(r).carrier().push_tiny(line)) continue;
    seat& theirs = seats_[static_cast<std::size_t>(r)];
    outgoing& m = theirs.send;
    m.header = {};
    m.header.set_key({lane().key, ticket(), 0, 0});
    m.header.call = signed_as();
    m.data = mine.value;
    m.size = bytes_;
    m.handed_over = [](outgoing& sent) noexcept {
      tiny_exchange& self = *seat_of<seat>(sent, offsetof(seat, send)).home;
      if (--self.missing_ == 0) self.fold();
    };
    ++missing_;
    link_to(r).send(m);
  }
}

/// One look for the line of `peer`; lines of other operations on the way are handed to the pair.
bool tiny_exchange::look(rank_t peer) noexcept {
  pair& link = link_to(peer);
  seat& theirs = seats_[static_cast<std::size_t>(peer)];
  if (link.early_arrivals() != 0 && link.take_early_tiny({lane().key, ticket(), 0, 0}, theirs.value, bytes_))
    return theirs.here = true;
  shm_wire& wire = owner().line_to(among().in_epoch(peer));
  const tiny_line* line = wire.peek_tiny();
  if (!line) return false;
  if (line->ticket == ticket() && line->lane == lane().key && line->call == *pack(signed_as())) {
    if (bytes_ != 0) std::memcpy(theirs.value, line->payload, bytes_);
    theirs.here = true;
  } else {
    link.dispatch_tiny(*line);
  }
  wire.pop_tiny();
  return theirs.here;
}

void tiny_exchange::await_rest() noexcept {
  ++missing_;  // this function's own hold: receives may complete inside `receive`
  for (rank_t r = 0; r < ranks_ && !finished(); ++r) {
    seat& theirs = seats_[static_cast<std::size_t>(r)];
    if (theirs.here) continue;
    posted_receive& p = theirs.receive;
    p.key = {lane().key, ticket(), 0, 0};
    p.call = signed_as();
    p.size = bytes_;
    p.target = theirs.value;
    p.consume = nullptr;
    p.completed = [](posted_receive& done) noexcept {
      seat& from = seat_of<seat>(done, offsetof(seat, receive));
      from.here = true;
      from.home->arrived();
      if (from.home->missing_ == 0) from.home->fold();
    };
    link_to(r).receive(p);
  }
  if (!finished() && --missing_ == 0) fold();
}

void tiny_exchange::arrived() noexcept { --missing_; }

void tiny_exchange::fold() noexcept {
  if (bytes_ != 0) {
    const std::size_t count = what().count;
    alignas(64) std::byte sum[tiny_line::capacity];
    std::memcpy(sum, seats_[0].value, bytes_);
    if (how_.wide() && ranks_ > 1) {
      fold_wide(sum, count);
    } else {
      for (rank_t r = 1; r < ranks_; ++r)
        how_.combine(sum, sum, seats_[static_cast<std::size_t>(r)].value, count);
      if (how_.settles()) how_.settle(sum, count);
    }
    std::memcpy(what().out, sum, bytes_);
  }
  owner().finish(*this, {});
}

void tiny_exchange::fold_wide(std::byte* out, std::size_t count) noexcept {
  alignas(64) std::byte so_far[sizeof(float) * tiny_line::capacity];
  how_.begin(so_far, seats_[0].value, count);
  const auto last = static_cast<std::size_t>(ranks_) - 1;
  for (std::size_t r = 1; r < last; ++r) how_.fold(so_far, so_far, seats_[r].value, count);
  how_.finish(out, so_far, seats_[last].value, count);
}

void tiny_exchange::take_back() noexcept {
  for (rank_t r = 0; r < ranks_; ++r) {
    if (r == among().rank()) continue;
    seat& theirs = seats_[static_cast<std::size_t>(r)];
    link_to(r).abandon(theirs.send);
    link_to(r).withdraw(theirs.receive);
  }
}

bool tiny_exchange::needs(rank_t in_epoch) const noexcept {
  const rank_t peer = among().member(in_epoch);
  if (peer == no_rank) return false;
  const seat& theirs = seats_[static_cast<std::size_t>(peer)];
  return !theirs.here || theirs.send.where != outgoing::place::idle;
}

void tiny_exchange::recycle() noexcept { owner().recycle(*this); }

}  // namespace chorale
