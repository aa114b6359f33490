// Small collective exchanges among the ranks of one host, for setting things up: bytes, descriptors, a
// barrier.
//
// Runs over the unix sockets of a world, which it borrows: nobody else may use them meanwhile, and every mate
// makes the same calls in the same order (checked: a mate that called something else is errc::mismatch).
// Results are indexed like `mates()`. Calls end by the awaiting task's deadline; after an error the sockets
// hold unfinished messages and the exchange must not be used again. One engine, one thread.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/async/task.hpp>
#include <chorale/transport/bootstrap/world.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace chorale {

class host_exchange {
 public:
  /// Most bytes that one rank contributes to one call.
  static constexpr std::size_t most_bytes = std::size_t{16} << 20;

  explicit host_exchange(const world& w);

  /// Ranks taking part, this one included, ascending.
  [[nodiscard]] const std::vector<rank_t>& mates() const noexcept { return mates_; }
  /// This rank's position in `mates()`.
  [[nodiscard]] std::size_t position() const noexcept { return position_; }

  /// Everybody's bytes; contributions may differ in size.
  [[nodiscard]] task<result<std::vector<std::vector<std::byte>>>> all_gather_bytes(
      std::span<const std::byte> mine);
  /// Everybody's descriptors, new ones of this process; this rank's own entry holds duplicates. At most 64
  /// each.
  [[nodiscard]] task<result<std::vector<std::vector<unique_fd>>>> all_gather_fds(std::span<const int> mine);
  [[nodiscard]] task<result<void>> barrier();

 private:
  struct arrival {
    std::vector<std::byte> bytes;
    std::vector<unique_fd> fds;
  };
  enum class kind : std::uint32_t { bytes = 1, fds = 2, barrier = 3 };
  task<result<std::vector<arrival>>> exchange(kind what, std::span<const std::byte> bytes,
                                              std::span<const int> fds);
  task<result<void>> send_to(std::size_t position, kind what, std::span<const std::byte> bytes,
                             std::span<const int> fds);
  task<result<arrival>> receive_from(std::size_t position, kind what);

  rank_t self_;
  std::vector<rank_t> mates_;
  std::vector<int> sockets_;  // by position; -1 for this rank
  std::size_t position_ = 0;
  std::uint64_t calls_ = 0;
};

}  // namespace chorale
