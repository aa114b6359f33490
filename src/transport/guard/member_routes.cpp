// How a member's frames travel: mailboxes to host-mates, control links to others, `next_hop` beyond.
#include <chorale/transport/guard/member.hpp>
#include <chorale/transport/guard/neighbours.hpp>
#include <chorale/transport/guard/watcher.hpp>

namespace chorale::guarding {
namespace {

/// Questions and answers are repeated; a peer that reads nothing must not make memory grow.
constexpr std::size_t most_queued = 256;

}  // namespace

frame member::blank(frame_kind kind) const noexcept {
  frame f;
  f.kind = kind;
  f.origin = setup_.self;
  f.nonce = setup_.nonce;
  f.epoch = setup_.epoch;
  return f;
}

void member::send(control_link& link, const frame_bytes& bytes) {
  link.send(bytes);
  if (link.waits_to_write()) watcher_->update(link);
}

void member::post(mate& m, const frame_bytes& bytes, when_full policy) {
  if (!m.mail.post(bytes, policy)) unroutable_frames_.fetch_add(1);
  m.to_ring = true;
}

void member::flood_links(const frame& f, rank_t except) {
  const frame_bytes bytes = encode(f);
  for (auto& link : links_)
    if (link.rank() != except) send(link, bytes);
}

void member::flood_mates(const frame& f, rank_t except) {
  const frame_bytes bytes = encode(f);
  for (auto& m : mates_) {
    const auto state = of(m.info.rank).state.load();
    if (m.info.rank != except && (state == member_state::alive || state == member_state::absent))
      post(m, bytes, when_full::wait);
  }
}

void member::route(const frame& f) {
  const auto& target = of(f.target);
  const bool direct = target.as_mate != nullptr || target.as_link != nullptr;
  const auto& hop = direct ? target : of(next_hop(setup_.self, f.target, setup_.size, f.attempt));
  const auto state = hop.state.load();
  const bool there = state == member_state::alive || state == member_state::absent;
  if (hop.as_mate != nullptr && there) {
    post(*hop.as_mate, encode(f), when_full::drop);
  } else if (hop.as_link != nullptr && hop.as_link->usable() && hop.as_link->queued() < most_queued) {
    send(*hop.as_link, encode(f));
  } else {
    unroutable_frames_.fetch_add(1);
  }
}

void member::ring_mates() noexcept {
  for (auto& m : mates_) {
    if (!m.to_ring) continue;
    m.to_ring = false;
    ring(*m.bell, *m.line, m.info.bell_fd.get());
  }
}

}  // namespace chorale::guarding
