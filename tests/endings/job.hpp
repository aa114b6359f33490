// One job under `chorale run`, or two joined by a virtual network: started, waited for, its output kept.
#pragma once

#include "board.hpp"

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

namespace endings {

[[nodiscard]] std::int64_t now_ns() noexcept;

/// The board of one run. Its descriptor is inherited by what is started; nothing of it has a name.
class shared_board {
 public:
  explicit shared_board(const plan& what);
  shared_board(const shared_board&) = delete;
  shared_board& operator=(const shared_board&) = delete;
  ~shared_board();
  [[nodiscard]] board& operator*() const noexcept { return *board_; }
  [[nodiscard]] board* operator->() const noexcept { return board_; }
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  int fd_;
  board* board_;
};

/// A started program with its output, both streams, in a memfd.
class job {
 public:
  job(const std::vector<std::string>& command, const std::vector<std::string>& variables);
  job(job&& other) noexcept;
  job& operator=(job&&) = delete;
  /// Kills it if it still runs.
  ~job();
  /// The exit code, 128 + signal, or −1 when it does not end in time.
  [[nodiscard]] int wait(std::chrono::nanoseconds limit);
  [[nodiscard]] std::string output() const;
  [[nodiscard]] std::int64_t ended_at() const noexcept { return ended_at_; }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::int64_t ended_at_ = 0;
};

/// Two network namespaces joined by a cable that can be cut. Needs root.
class two_hosts {
 public:
  two_hosts();
  two_hosts(const two_hosts&) = delete;
  two_hosts& operator=(const two_hosts&) = delete;
  ~two_hosts();
  [[nodiscard]] static bool possible();
  /// Prefix of a command that is to run on host 0 or 1.
  [[nodiscard]] std::vector<std::string> on(int host) const;
  /// Both sides stay up for their owners; nothing passes and nobody is told.
  void cut() const;

 private:
  std::string names_[2];
};

/// True when so many posts came within the limit.
[[nodiscard]] bool taken(sem_t& posted, int times, std::chrono::nanoseconds limit) noexcept;

}  // namespace endings
