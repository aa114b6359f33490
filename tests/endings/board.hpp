// What the driver of the endings test and its ranks share: a mapped memfd whose descriptor the ranks inherit.
//
// The driver fills in the plan before it starts the job; each rank writes its own report; nobody waits on it
// but through the semaphores, always with a limit.
#pragma once

#include <chorale/async/error.hpp>

#include <semaphore.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace endings {

using chorale::rank_t;

enum class kind : std::uint32_t {
  kill,      ///< SIGKILL from outside, at a random moment
  compute,   ///< likewise, while everybody else computes and nobody polls
  segv,      ///< SIGSEGV, core dumps on
  stop,      ///< SIGSTOP
  link,      ///< the network between two halves goes silent
  leave,     ///< a rank destroys its communicator, between operations or inside one
  mismatch,  ///< a rank calls something else
  deadline,  ///< a rank comes late, another's deadline passes
  busy,      ///< a rank computes for three time-outs: nothing may end
  abort,     ///< SIGKILL; the launcher ends the job
  fork,      ///< ranks have children, which may call nothing and disturb nothing
};
inline constexpr std::array kind_names{"kill",     "compute",  "segv", "stop",  "link", "leave",
                                       "mismatch", "deadline", "busy", "abort", "fork"};
inline constexpr const char* name_of(kind k) { return kind_names[static_cast<std::size_t>(k)]; }

inline constexpr std::size_t most_ranks = 16;

struct plan {
  kind what = kind::kill;
  std::uint64_t seed = 0;
  std::int32_t ranks = 2;
  rank_t victim = 0;
  std::uint64_t at = 0;          ///< operation in which self-made endings happen
  std::uint64_t operations = 0;  ///< after the reset
  std::uint64_t resident = 0;    ///< bytes the victim keeps in memory
};

/// What a rank holds of the system.
struct footprint {
  std::int32_t descriptors = 0;
  std::int32_t threads = 0;
  std::int32_t segments = 0;  ///< mapped memfds of the library
};

struct rank_report {
  std::atomic<pid_t> pid{0};
  std::int32_t first = 0;  ///< errc of the operation that ended
  rank_t culprit = chorale::no_rank;
  std::int64_t awaited_from = 0;  ///< steady clock: when its await began
  std::int64_t ended_at = 0;      ///< and when it ended
  std::int32_t later = 0;         ///< errc of a call after that
  std::int32_t elsewhere = 0;     ///< errc of what must go on working: another lane, messages
  std::int32_t reset = 0;         ///< errc
  std::int64_t reset_took = 0;
  std::int32_t size_after = 0;
  std::uint64_t operations = 0;  ///< that gave the right sum
  std::uint64_t before_the_end = 0;
  footprint before, settled, after;
  std::array<char, 1000> text{};
  std::atomic<std::uint32_t> finished{0};
};

struct board {
  plan what;
  sem_t working;                             ///< posted by every rank that is about to loop
  sem_t survived;                            ///< and by those that are through
  sem_t timed_out;                           ///< posted when the one with the deadline has its outcome
  std::array<sem_t, most_ranks> together{};  ///< see `meet`
  std::atomic<std::int64_t> moment{0};       ///< of the ending
  std::array<rank_report, most_ranks> ranks;
};

inline constexpr const char* board_variable = "CHORALE_ENDINGS_BOARD";

}  // namespace endings
