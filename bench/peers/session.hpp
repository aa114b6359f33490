// A peer program's side of a comparison: reads commands, times and checks what a library does.
//
// Times as bench/meter.cpp does: the input is rewritten before each call, outside the time, and the slowest
// rank's mean counts. One thread per rank, which sleeps in read() between commands.
#pragma once

#include "../pattern.hpp"
#include "../plain_buffer.hpp"
#include "protocol.hpp"

#include <string>

namespace chorale::bench::peers {

/// A library, on one rank.
class peer {
 public:
  peer() = default;
  peer(const peer&) = delete;
  peer& operator=(const peer&) = delete;
  virtual ~peer() = default;

  /// Gets ready to call it with this memory. Empty, or why the library cannot.
  [[nodiscard]] virtual std::string prepare(const subject& about, std::byte* in, std::byte* out) = 0;
  virtual void call() = 0;
  /// Whether the output arrives in the input's memory, as libraries without another form have it.
  [[nodiscard]] virtual bool answers_in_place() const { return false; }
  virtual void meet() = 0;
  [[nodiscard]] virtual double largest(double mine) = 0;
  [[nodiscard]] virtual double sum(double mine) = 0;
};

class session {
 public:
  session(peer& library, rank_t rank, rank_t ranks) : library_{library}, rank_{rank}, ranks_{ranks} {}

  /// Serves the commands of this rank: of FOLDER/RANK, a fifo. Ends with them. Rank 0 answers.
  void serve(const std::string& name, const std::string& folder);

 private:
  void obey(const std::string& line);
  [[nodiscard]] std::string prepare(const subject& about);
  void run(const command& c);
  void check(const command& c);

  peer& library_;
  rank_t rank_;
  rank_t ranks_;
  plain_buffer in_;
  plain_buffer out_;
  std::size_t in_bytes_ = 0;
};

}  // namespace chorale::bench::peers
