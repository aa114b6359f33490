// A job of real processes for tests: every rank is a fork of the test, which itself touches nothing of
// chorale.
#pragma once

#include <chorale/chorale.hpp>

#include <functional>
#include <stdexcept>
#include <string>

namespace chorale::testing {

using rank_body = std::function<task<void>(communicator&)>;

/// "auto" (shared memory) or "tcp" between host-mates.
struct job_options {
  rank_t ranks = 3;
  std::string transport = "auto";
  rank_t killed = no_rank;  ///< who is expected to die
};

/// Runs `life` in every rank's process, which joins by itself; what went wrong in any, or nothing.
[[nodiscard]] std::string run_ranks(const job_options& options, const std::function<void()>& life);

/// Runs `body` on every rank; what went wrong on any, or nothing.
[[nodiscard]] std::string run_job(const job_options& options, const rank_body& body);

/// In a body: Boost's macros count in the wrong process there.
inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error{"not so: " + what};
}

inline task<error> outcome_of(ticket t) {
  as_result_of<ticket> awaited = as_result(std::move(t));
  auto r = co_await std::move(awaited);
  co_return r ? error{} : r.error();
}

}  // namespace chorale::testing
