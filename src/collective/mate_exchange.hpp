// The three blocking collectives that making a device group needs, over the unix sockets between host-mates.
//
// Borrows the sockets of a world whose ranks are all host-mates; every rank makes the same calls in the same
// order. Ends by the deadline, or when a mate's socket ends, with an error that names the rank. For a thread
// that may block.
#pragma once

#include <chorale/kernels/rank_exchange.hpp>
#include <chorale/transport/bootstrap/world.hpp>

#include <chrono>
#include <vector>

namespace chorale {

class mate_exchange final : public rank_exchange {
 public:
  mate_exchange(const world& members, std::chrono::steady_clock::time_point until);

  result<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> mine) override;
  result<std::vector<int>> all_gather_fds(int mine) override;
  result<void> barrier() override;

 private:
  result<void> send(rank_t to, std::span<const std::byte> bytes, int fd) const;
  result<int> receive(rank_t from, std::span<std::byte> bytes) const;
  result<void> wait(rank_t peer, int socket, short events) const;
  [[nodiscard]] error ended(rank_t peer, const char* doing) const;

  rank_t rank_;
  std::vector<int> sockets_;  // by rank; -1 for this one
  std::chrono::steady_clock::time_point until_;
};

}  // namespace chorale
