// What the peers of one listener share: who of them has something to take, in turn, and who was not accepted
// yet.
//
// Owned by the listener and each of its peers. A peer lists itself at most once per kind and takes itself off
// before it goes. One engine's thread.
#pragma once

#include <chorale/async/event.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

namespace chorale {

class endpoint_peer;

/// Peers that have something to take. First come, first served; who has more goes to the back.
class peer_turns {
 public:
  void add(endpoint_peer& peer) {
    turns_.push_back(&peer);
    changed.set();
  }
  void remove(const endpoint_peer& peer) noexcept { std::erase(turns_, &peer); }
  [[nodiscard]] bool empty() const noexcept { return turns_.empty(); }
  /// Precondition: not empty.
  endpoint_peer& next() noexcept {
    endpoint_peer& first = *turns_.front();
    turns_.pop_front();
    return first;
  }
  event changed;

 private:
  std::deque<endpoint_peer*> turns_;
};

class endpoint_hub {
 public:
  peer_turns messages;
  peer_turns requests;
  std::deque<std::shared_ptr<endpoint_peer>> unclaimed;
  event arrived;
  std::size_t peers = 0;
  std::uint64_t strangers = 0;
  bool closed = false;

  /// Nobody will accept it any more, and nothing of it is left to take.
  void forget(const endpoint_peer& peer) noexcept {
    std::erase_if(unclaimed, [&](const auto& p) { return p.get() == &peer; });
  }
};

}  // namespace chorale
