// A job that has come together: every rank's identity and the authenticated sockets to it.
//
// What `bootstrap` makes and communicators are built on. Between ranks of one host (`host_mate`: same host
// id, same user, and a descriptor was really passed) there is a unix stream socket, `mate`; between others
// there are `data` sockets and, for the pairs chosen by the configuration, a `control` socket. All are
// non-blocking and idle: nobody has written to them after the hello. Move-only; the holder's thread.
#pragma once

#include <chorale/transport/bootstrap/config.hpp>
#include <chorale/transport/bootstrap/hosted_rendezvous.hpp>
#include <chorale/transport/bootstrap/join.hpp>
#include <chorale/transport/socket.hpp>

#include <memory>
#include <string>
#include <vector>

namespace chorale {

struct peer {
  rank_t rank = no_rank;        ///< in this epoch
  rank_t origin = no_rank;      ///< in the job as launched
  bool host_mate = false;       ///< true for this rank itself
  pid_t pid = 0;                ///< in this process's pid namespace if a mate, as the peer sees it otherwise
  unique_fd process;            ///< mates: pidfd, where the kernel gives one
  unique_fd mate;               ///< mates: unix stream socket
  std::vector<unique_fd> data;  ///< tcp, by stripe; between mates only with CHORALE_TRANSPORT=tcp
  unique_fd control;            ///< tcp, for the guard
  std::string host_id;
  std::string where;  ///< an address, for messages to people
  std::uint64_t capabilities = 0;
};

struct world {
  rank_t rank = 0;
  rank_t size = 1;
  rank_t origin = 0;  ///< this rank in the job as launched
  std::uint64_t epoch = 0;
  std::uint64_t nonce = 0;
  std::vector<peer> peers;  ///< by rank; [rank] is this one, without sockets

  bootstrap_config config;
  std::unique_ptr<hosted_rendezvous> hosted;  ///< on rank 0 of jobs without `chorale run`
  rendezvous_link rendezvous;                 ///< failure reports, and the decider of resets

  struct report {
    duration join{};              ///< until the table was there
    duration mesh{};              ///< from there until every peer was connected
    std::uint64_t strangers = 0;  ///< connections dropped in the mesh: they had proved nothing
  } spent;

  /// Ranks of this host, this one included, ascending.
  [[nodiscard]] std::vector<rank_t> host_mates() const;
};

}  // namespace chorale
