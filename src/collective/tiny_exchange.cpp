#include <chorale/collective/core.hpp>
#include <chorale/collective/tiny_exchange.hpp>
#include <chorale/transport/shm_wire.hpp>

#include <cstddef>
#include <cstring>

namespace chorale {
namespace {

/// Looks at each missing line before the operation is left to the engine: about two microseconds.
constexpr int looks = 128;
constexpr int looks_per_poll = 8;

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
  ranks_ = among().size();
  bytes_ = line_bytes(what(), ranks_);
  const bool meets = what().kind == collective_kind::barrier || what().carries_nothing();
  pattern_ = meets ? collective_kind::all_reduce : what().kind;
  const rank_t only = pattern_ == collective_kind::broadcast ? what().root : no_rank;
  missing_ = 1;  // this function's own hold: a send may be handed over before the next is begun
  for (rank_t r = 0; r < ranks_; ++r) {
    bool& here = seats_[static_cast<std::size_t>(r)].here;
    here = r == among().rank() || (only != no_rank && r != only);
    missing_ += here ? 0 : 1;
  }
  if (only == no_rank || only == among().rank()) {
    take_own_value();
    write_lines();
  }
  const bool spin = owner().loop().spin_budget() != duration::zero();
  for (int i = 0; i < (spin ? looks : 1) && missing_ != 1 && !finished(); ++i) {
    for (rank_t r = 0; r < ranks_ && !finished(); ++r)
      if (!seats_[static_cast<std::size_t>(r)].here && look(r)) arrived();
    if (owner().cause_pending()) break;
    // A peer that is far ahead has run out of lines and sends frames.
    if (i % looks_per_poll == looks_per_poll - 1) owner().poll(1);
  }
  if (finished()) return;
  await_rest();
  if (!finished() && --missing_ == 0) conclude();
}

void tiny_exchange::take_own_value() noexcept {
  seat& mine = seats_[static_cast<std::size_t>(among().rank())];
  if (bytes_ == 0) return;
  if (how_.scales())
    how_.scale(mine.value, what().in, what().count, what());
  else
    std::memcpy(mine.value, value_for(among().rank()), bytes_);
}

/// Stays until the operation has ended.
const std::byte* tiny_exchange::value_for(rank_t peer) noexcept {
  if (pattern_ == collective_kind::all_to_all) return what().in + static_cast<std::size_t>(peer) * bytes_;
  return peer == among().rank() ? what().in : seats_[static_cast<std::size_t>(among().rank())].value;
}

void tiny_exchange::write_lines() noexcept {
  tiny_line line;
  line.lane = lane().key;
  line.ticket = ticket();
  line.call = *pack(signed_as());
  line.stamp = tiny_line::make_stamp(0, 0, static_cast<std::uint8_t>(bytes_));
  for (rank_t r = 0; r < ranks_ && !finished(); ++r)
    if (r != among().rank()) write_line(r, line);
}

void tiny_exchange::write_line(rank_t peer, tiny_line& line) noexcept {
  const std::byte* value = value_for(peer);
  if (bytes_ != 0) std::memcpy(line.payload, value, bytes_);
  if (link_to(peer).send_line(line)) return;
  outgoing& m = seats_[static_cast<std::size_t>(peer)].send;
  m.header = {};
  m.header.set_key({lane().key, ticket(), 0, 0});
  m.header.call = signed_as();
  m.data = value;
  m.size = bytes_;
  m.handed_over = [](outgoing& sent) noexcept {
    tiny_exchange& self = *seat_of<seat>(sent, offsetof(seat, send)).home;
    if (--self.missing_ == 0) self.conclude();
  };
  ++missing_;
  link_to(peer).send(m);
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
  const bool ours = line->ticket == ticket() && line->lane == lane().key &&
                    line->call == *pack(signed_as()) && line->size() == bytes_;
  if (!ours) {
    link.dispatch_tiny(*line);
    wire.pop_tiny();
    return theirs.here;
  }
  if (bytes_ != 0) std::memcpy(theirs.value, line->payload, bytes_);
  theirs.here = true;
  wire.pop_tiny();
  link.line_taken(bytes_);
  return true;
}

void tiny_exchange::await_rest() noexcept {
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
      if (from.home->missing_ == 0) from.home->conclude();
    };
    link_to(r).receive(p);  // may complete inside
  }
}

void tiny_exchange::arrived() noexcept { --missing_; }

/// Everything is here.
void tiny_exchange::conclude() noexcept {
  std::byte* const out = what().out;
  switch (bytes_ == 0 ? collective_kind::none : pattern_) {
    case collective_kind::all_reduce:
      fold();
      break;
    case collective_kind::broadcast:
      if (out == what().in && what().root == among().rank()) break;  // others may be reading the root's
      std::memcpy(out, seats_[static_cast<std::size_t>(what().root)].value, bytes_);
      break;
    case collective_kind::all_gather:
    case collective_kind::all_to_all:
      for (std::size_t r = 0; r < static_cast<std::size_t>(ranks_); ++r)
        std::memcpy(out + r * bytes_, seats_[r].value, bytes_);
      break;
    default:
      break;
  }
  owner().finish(*this, {});
}

void tiny_exchange::fold() noexcept {
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
