// Who this process is in its job, where the others are met, and the secret they share, from whichever
// launcher started it.
//
// `from_environment` reads variables only (no files, no network) and either returns a complete configuration
// or says which variable is wrong, what it holds and what to write instead. The table of launchers, what is
// read from each and what is refused is in docs/launchers.md. A plain value; any thread.
#pragma once

#include <chorale/async/clock.hpp>
#include <chorale/async/result.hpp>
#include <chorale/transport/socket.hpp>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace chorale {

enum class launcher { none, chorale, mpirun, hydra, torchrun, srun, kubernetes };
[[nodiscard]] std::string_view name_of(launcher l) noexcept;

/// Reads one variable; nothing when it is not set.
using variable_lookup = std::function<std::optional<std::string>(const char* name)>;
/// The process's own environment.
[[nodiscard]] variable_lookup process_variables();

/// Which pairs of ranks on different hosts get a control socket besides their data sockets. Symmetric, the
/// same on every rank.
using pair_choice = std::function<bool(rank_t low, rank_t high, rank_t size)>;
/// Every pair up to 64 ranks, beyond that those at a distance of a power of two.
[[nodiscard]] bool default_control_pairs(rank_t low, rank_t high, rank_t size) noexcept;

struct bootstrap_config {
  rank_t rank = 0;
  rank_t size = 1;
  launcher started_by = launcher::none;

  address root;                  ///< where the rendezvous is
  bool hosts_rendezvous = true;  ///< this rank serves it, in a thread of its own
  std::string secret;            ///< may be empty where `root` is local

  std::string host_id;             ///< boot id, or CHORALE_HOSTID
  bool tcp_between_mates = false;  ///< CHORALE_TRANSPORT=tcp: data sockets between ranks of one host as well
  std::uint64_t capabilities = 0;  ///< opaque here: what the library above tells every rank of this one
  int stripes = 1;                 ///< data sockets per pair; the smallest of all ranks counts
  interface_filter interfaces;

  duration timeout = std::chrono::seconds{60};       ///< for everybody to be there and connected
  duration hello_timeout = std::chrono::seconds{5};  ///< for one hello, on the accepting side
  duration reset_grace = std::chrono::seconds{5};  ///< how long a reset waits for members that have not asked

  pair_choice mesh_pairs;  ///< which pairs are connected at all; empty: every pair
  pair_choice control_pairs = default_control_pairs;

  /// A job of one, or the job that the launcher's variables describe.
  [[nodiscard]] static result<bootstrap_config> from_environment(
      const variable_lookup& variables = process_variables());
};

/// The identity of this host as far as the kernel tells: its boot id.
[[nodiscard]] result<std::string> boot_id();

}  // namespace chorale
