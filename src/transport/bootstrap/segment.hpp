// Shared memory between the ranks of one host: sealed memfds, passed as descriptors, never a name in
// /dev/shm.
//
// A segment is sealed against shrinking, growing and further sealing before it is passed on, and a receiver
// checks the seals and the size before it maps: a peer can not make an access fault. Fresh segments are zero.
// A segment owns its mapping; the memory lives until the last process has unmapped it.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/async/task.hpp>
#include <chorale/transport/bootstrap/host_exchange.hpp>
#include <chorale/transport/socket.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace chorale {

class segment {
 public:
  segment() = default;
  segment(segment&& other) noexcept;
  segment& operator=(segment&& other) noexcept;
  ~segment();

  /// New, zeroed, sealed and mapped.
  [[nodiscard]] static result<segment> create(std::size_t size);
  /// Maps one that came from another process; `size` is what it must have.
  [[nodiscard]] static result<segment> map(unique_fd memory, std::size_t size);

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  [[nodiscard]] int fd() const noexcept { return memory_.get(); }
  /// The mapping stays. For memory that is passed on to nobody any more.
  void close_descriptor() noexcept { memory_.reset(); }
  explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  segment(unique_fd memory, std::byte* data, std::size_t size) noexcept
      : memory_{std::move(memory)}, data_{data}, size_{size} {}
  unique_fd memory_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// One segment per mate, all mapped; indexed like `mates()`, [position()] was created here. Each has the size
/// that its owner asked for.
[[nodiscard]] task<result<std::vector<segment>>> exchange_segments(host_exchange& among, std::size_t size);
/// One segment for all of them, created by the lowest rank. All must ask for the same size: errc::mismatch.
[[nodiscard]] task<result<segment>> share_segment(host_exchange& among, std::size_t size);
/// An eventfd per mate; [position()] is this rank's own, given in as `own` (e.g. an engine's doorbell).
[[nodiscard]] task<result<std::vector<unique_fd>>> exchange_doorbells(host_exchange& among, int own);

}  // namespace chorale
