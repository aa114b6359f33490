#include <chorale/collective/core.hpp>
#include <chorale/collective/message_execution.hpp>

namespace chorale {

void message_execution::begin() {
  const message_key key{lane().key, ticket(), 0, 0};
  pair& link = link_to(what().peer);
  if (what().sending) {
    send_.home = this;
    send_.header = {};
    send_.header.set_key(key);
    send_.header.call = signed_as();
    send_.data = what().in;
    send_.size = what().bytes();
    send_.handed_over = [](outgoing& m) noexcept {
      message_execution& self = *static_cast<send_state&>(m).home;
      self.owner().finish(self, {});
    };
    return link.send(send_);
  }
  receive_.home = this;
  receive_.key = key;
  receive_.call = signed_as();
  receive_.target = what().out;
  receive_.size = what().bytes();
  receive_.completed = [](posted_receive& r) noexcept {
    message_execution& self = *static_cast<receive_state&>(r).home;
    self.owner().finish(self, {});
  };
  link.receive(receive_);
}

void message_execution::take_back() noexcept {
  pair& link = link_to(what().peer);
  link.abandon(send_);
  link.withdraw(receive_);
}

bool message_execution::needs(rank_t in_epoch) const noexcept {
  return in_epoch == among().in_epoch(what().peer);
}

void message_execution::recycle() noexcept { owner().recycle(*this); }

}  // namespace chorale
