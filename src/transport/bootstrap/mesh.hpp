// Connecting the ranks of a table with each other.
//
// For each pair the higher rank connects and the lower accepts. Host mates: the connector tries the
// acceptor's abstract unix socket; it reaches it only from the same network namespace, so containers on one
// host that can not share fall back to tcp by themselves. Both sides check SO_PEERCRED for their own user and
// pass a descriptor through the socket before they call each other mates. The connector tells the outcome in
// its tcp hellos, so that both sides agree. Other ranks: the addresses of the record are tried in order, each
// for two seconds, until the deadline.
//
// Strangers at the listeners are dropped and counted. One engine, one thread; everything ends by the deadline
// with the ranks that are not connected named.
#pragma once

#include <chorale/transport/bootstrap/config.hpp>
#include <chorale/transport/bootstrap/join.hpp>
#include <chorale/transport/bootstrap/membership.hpp>
#include <chorale/transport/bootstrap/world.hpp>

#include <string>
#include <vector>

namespace chorale {

/// Where this rank's peers of one epoch will connect: opened before its record is handed in, gone with the
/// mesh.
struct mesh_listeners {
  unique_fd mates;
  std::string mate_name;
  std::vector<unique_fd> tcp;
  std::vector<std::string> addresses;

  /// `towards_root` is this side of the connection to the rendezvous: the address most likely to be
  /// reachable.
  [[nodiscard]] static result<mesh_listeners> open(const bootstrap_config& config,
                                                   const address& towards_root);
};

struct mesh {
  std::vector<peer> peers;
  std::uint64_t strangers = 0;
};

/// Losses that the rendezvous reports meanwhile end it with errc::peer_lost.
[[nodiscard]] task<result<mesh>> connect_mesh(const bootstrap_config& config, const member_table& table,
                                              rank_t self, const mesh_listeners& listeners,
                                              rendezvous_link& link, time_point until);

}  // namespace chorale
