#include <chorale/collective/core.hpp>
#include <chorale/collective/message_execution.hpp>

namespace chorale {

void message_execution::begin() {
  sending_ = what().sending;
  receiving_ = what().receiving;
  gone_ = no_rank;
  if (receiving_) receive();
  if (sending_) send();
}

rank_t message_execution::destination() const noexcept { return among().in_epoch(what().peer); }

void message_execution::send() {
  if (owner().departed(destination(), among())) {
    gone_ = destination();
    return send_ended();
  }
  send_.home = this;
  send_.header = {};
  send_.header.set_key({lane().key, what().send_number, 0, 0});
  send_.header.call = signed_as();
  send_.data = what().in;
  send_.size = what().bytes();
  send_.handed_over = [](outgoing& m) noexcept { static_cast<send_state&>(m).home->send_ended(); };
  owner().link_to(destination()).send(send_);
}

void message_execution::receive() {
  receive_.home = this;
  receive_.call = received_as();
  receive_.target = what().out;
  receive_.completed = [](posted_receive& r) noexcept {
    static_cast<receive_state&>(r).home->receive_ended();
  };
  if (what().receive_number == 0) return owner().look_for_message(*this);
  receive_.key = {lane().key, what().receive_number, 0, 0};
  receive_.size = what().room * size_of(what().type);
  pair& link = owner().link_to(met());
  link.early(lane().key, what().receive_number, [this](const frame_header& h) {
    if (h.kind != frame_kind::ready) make_ready_for(h.call);
  });
  link.receive(receive_);
}

void message_execution::meet(const signature& theirs) {
  receive_.key = {lane().key, what().receive_number, 0, 0};
  make_ready_for(theirs);
  owner().link_to(met()).receive(receive_);
}

void message_execution::expect(const signature& theirs) noexcept {
  // Once it has begun its length stays, whatever a peer writes.
  if (receiving_ && receive_.received == 0) make_ready_for(theirs);
}

void message_execution::make_ready_for(const signature& theirs) noexcept {
  receive_.size = theirs.count * size_of(what().type);
  came_ = {among().member(met()), static_cast<tag_t>(theirs.root), theirs.count, receive_.size};
}

void message_execution::send_ended() noexcept {
  sending_ = false;
  forget_send_number();
  half_ended();
}

void message_execution::receive_ended() noexcept {
  receiving_ = false;
  half_ended();
}

void message_execution::half_ended() noexcept {
  if (sending_ || receiving_) return;
  owner().finish(*this, gone_ == no_rank ? error{} : error{errc::peer_left, {}, gone_});
}

bool message_execution::goes_on_without(rank_t in_epoch) noexcept {
  gone_ = in_epoch;
  if (sending_ && destination() == in_epoch) {
    owner().link_to(in_epoch).abandon(send_);
    sending_ = false;
  }
  if (receiving_ && needs(in_epoch)) {
    if (met() != no_rank) owner().link_to(met()).withdraw(receive_);
    receiving_ = false;
  }
  return sending_ || receiving_;
}

void message_execution::take_back() noexcept {
  if (sending_) owner().link_to(destination()).abandon(send_);
  if (receiving_ && met() != no_rank) owner().link_to(met()).withdraw(receive_);
  sending_ = receiving_ = false;
}

bool message_execution::needs(rank_t in_epoch) const noexcept {
  if (sending_ && destination() == in_epoch) return true;
  if (!receiving_) return false;
  if (met() != no_rank) return met() == in_epoch;
  if (what().source != any_source) return among().in_epoch(what().source) == in_epoch;
  // Whoever is the last of all that could send; what goes to itself comes.
  const bool to_itself = sending_ && destination() == owner().rank();
  return !to_itself && owner().all_departed(among());
}

bool message_execution::may_wait_for(rank_t in_epoch) const noexcept {
  const bool anybody = receiving_ && met() == no_rank && what().source == any_source;
  return needs(in_epoch) || (anybody && among().member(in_epoch) != no_rank);
}

void message_execution::recycle() noexcept { owner().recycle(*this); }

}  // namespace chorale
