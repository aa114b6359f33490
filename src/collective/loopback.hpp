// A rank's link to itself: a ring of shared memory whose two ends are one process. Messages to oneself are
// matched, kept and bounded like all others. Engine's thread; a megabyte, made with the first such message.
#pragma once

#include <chorale/transport/pair.hpp>
#include <chorale/transport/shm_wire.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace chorale {

class loopback {
 public:
  loopback(rank_t self, int doorbell, arrival_judge& judge)
      : memory_{static_cast<std::byte*>(std::aligned_alloc(64, shm_segment::bytes(1))), std::free},
        link_{self, wire_to_itself(memory_.get(), doorbell), judge} {}
  [[nodiscard]] pair& link() noexcept { return link_; }

 private:
  static std::unique_ptr<wire> wire_to_itself(std::byte* memory, int doorbell) {
    if (!memory) throw std::bad_alloc{};
    std::fill_n(memory, shm_segment::bytes(1), std::byte{});
    const shm_segment ring = shm_segment::initialise(memory, 1);
    return std::make_unique<shm_wire>(shm_wire_setup{ring, ring, 0, 0, doorbell});
  }
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
  pair link_;
};

}  // namespace chorale
