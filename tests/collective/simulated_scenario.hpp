// What happens in one seed of the simulation: the calls that ranks make, and what goes wrong.
#pragma once

#include <chorale/collective/call.hpp>
#include <chorale/collective/selection.hpp>
#include <chorale/collective/simulated_network.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace chorale::testing {

/// A call of the program, made by every rank (collectives) or by two.
struct planned_call {
  collective_kind kind = collective_kind::all_reduce;
  std::uint64_t lane = 0;
  std::size_t count = 0;
  rank_t from = no_rank;  ///< message; the root of a broadcast or reduce
  rank_t to = no_rank;
  std::uint64_t ticket = 0;   ///< collectives: the number on their lane
  tag_t tag = 0;              ///< message
  bool from_anybody = false;  ///< message: its receive names no sender; the tag is no other message's

  [[nodiscard]] bool collective() const { return kind != collective_kind::message; }
  /// Nobody can be through before everybody has called.
  [[nodiscard]] bool meets() const {
    return kind == collective_kind::all_reduce || kind == collective_kind::barrier || count == 0;
  }
  [[nodiscard]] bool concerns(rank_t r) const { return collective() || r == from || r == to; }
};

enum class fault_kind : std::uint8_t {
  deadline,  ///< `rank` calls `call` with a deadline
  cancel,    ///< `rank` is asked to stop while it awaits `call`
  drop,      ///< `rank` takes a ticket for `call` and destroys it
  mismatch,  ///< `rank` calls something else
  // From here on the whole epoch is concerned.
  death,   ///< `rank`'s process ends
  freeze,  ///< `rank` stops for ever, and its guard with it
  cut,     ///< the connection of `rank` and `other` breaks
  leave,   ///< `rank` leaves in good order after `call`
};

struct planned_fault {
  fault_kind kind = fault_kind::deadline;
  rank_t rank = no_rank;
  rank_t other = no_rank;
  std::size_t call = 0;
  std::uint64_t ticks = 0;   ///< how long it lasts, or when it happens
  unsigned variant = 0;      ///< of a mismatch
  bool silent = false;       ///< connections do not tell
  bool one_witness = false;  ///< a single guard finds out by itself
};

struct scenario {
  std::uint64_t seed = 0;
  rank_t ranks = 0;
  simulated_conditions conditions;
  selection_settings selection;
  std::vector<planned_call> calls;
  std::vector<planned_fault> faults;
  std::uint64_t hop_ticks = 10;  ///< of guards
  std::uint64_t think_ticks = 20;
};

/// Everything follows from the two arguments.
[[nodiscard]] scenario draw_scenario(std::uint64_t seed, rank_t ranks);
[[nodiscard]] std::string describe(const scenario& s);
[[nodiscard]] std::string describe(const planned_fault& f);

/// What `rank` calls in place of `call`, mismatches included. Without buffers.
[[nodiscard]] call call_of(const scenario& s, rank_t rank, std::size_t index);

}  // namespace chorale::testing
