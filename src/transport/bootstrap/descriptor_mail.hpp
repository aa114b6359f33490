// Descriptors that ranks of one host hand each other under names, at any time after the job came together.
//
// Uses the unix sockets of a world when nobody else does. A letter is a name of 8 bytes with one descriptor.
// Whoever sends tells the receiver by other means that the letter is there; `take` then finds it, whatever
// came before it, and keeps the others. One engine, one thread.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/async/task.hpp>
#include <chorale/transport/bootstrap/world.hpp>

#include <cstdint>
#include <vector>

namespace chorale {

class descriptor_mail {
 public:
  /// The descriptor is duplicated; the caller keeps its own.
  [[nodiscard]] static task<result<void>> send(const peer& to, std::uint64_t name, int fd);
  /// Never waits. errc::protocol_error when the letter is not there, errc::link_lost when none will come.
  [[nodiscard]] result<unique_fd> take(const peer& from, std::uint64_t name);

 private:
  struct letter {
    rank_t from = no_rank;
    std::uint64_t name = 0;
    unique_fd content;
  };
  std::vector<letter> kept_;
};

}  // namespace chorale
