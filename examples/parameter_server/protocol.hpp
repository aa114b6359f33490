// What workers and servers say to each other: the tags of requests and the heads that go with them.
//
// Heads are plain structs, copied byte by byte: all of a job run on machines of one byte order. Parameters
// and gradients travel as f32 tensors behind them.
#pragma once

#include <cstdint>

namespace parameter_server {

enum tag : std::uint64_t {
  join = 1,        ///< joining → joined: a worker begins, or begins again
  pull = 2,        ///< pulling → pulled, parameters
  push = 3,        ///< pushing, gradient → pushed
  statistics = 4,  ///< → one worker_record for each worker known, as bytes
  stop = 5,        ///< → nothing: the server writes its ledger and ends
};

struct joining {
  std::uint32_t worker = 0;
};

struct joined {
  std::uint64_t session = 0;      ///< goes with every push; an earlier session of this worker is over
  std::uint64_t last_number = 0;  ///< the worker's last push that was applied; the next has a higher one
};

/// As `newer_than`: whatever there is.
inline constexpr std::uint64_t any_version = ~std::uint64_t{0};

struct pulling {
  std::uint64_t newer_than = 0;  ///< answered once the version is higher, or the training is over
};

struct pulled {
  std::uint64_t version = 0;
  std::uint64_t versions = 0;  ///< the training is over at this one
  std::uint64_t first = 0;     ///< which parameters these are, of …
  std::uint64_t total = 0;     ///< … so many
};

struct pushing {
  std::uint32_t worker = 0;
  std::uint32_t unused = 0;
  std::uint64_t session = 0;
  std::uint64_t number = 0;   ///< of this worker at this server, rising; a push sent again keeps its number
  std::uint64_t version = 0;  ///< of the parameters it was computed from
};

enum class verdict : std::uint64_t {
  applied = 0,     ///< it is in the server's memory
  again = 1,       ///< so it was already: this was a repetition
  late = 2,        ///< its version was closed without it; it was dropped
  superseded = 3,  ///< a newer session of this worker has joined; it was dropped
};

struct pushed {
  verdict outcome = verdict::applied;
  std::uint64_t version = 0;  ///< the current one
};

struct worker_record {
  std::uint64_t worker = 0;
  std::uint64_t sessions = 0;
  std::uint64_t applied = 0;
  std::uint64_t again = 0;
  std::uint64_t late = 0;
};

}  // namespace parameter_server
