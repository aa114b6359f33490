// The place where the ranks of a job meet, and the one that decides who goes on after a failure.
//
// Served by `chorale run`, or by rank 0 in a thread of its own (`hosted_rendezvous`). Each member keeps one
// connection to it for the life of the job. It collects a record per rank, checks that they fit together and
// sends everybody the whole table, with the epoch's number and a random nonce. The table goes out directly:
// one connection, some 200 bytes per member and member, no relay that could fail; 1,000 ranks cost 1,000
// descriptors.
//
// Resets: the first member that asks opens one; when every member of the epoch has asked, ended or left, or
// `reset_grace` has passed, those that asked are the new epoch's members, in their old order. The decision is
// published once; who was absent gets errc::excluded when it asks later.
//
// A connection that fails its hello (garbage, silence, wrong secret) changes nothing and is counted. All
// methods belong to the thread of the engine that runs `serve`.
#pragma once

#include <chorale/async/clock.hpp>
#include <chorale/async/event.hpp>
#include <chorale/async/result.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/transport/bootstrap/accept_loop.hpp>
#include <chorale/transport/bootstrap/hello.hpp>
#include <chorale/transport/bootstrap/membership.hpp>
#include <chorale/transport/bootstrap/message.hpp>
#include <chorale/transport/socket.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace chorale {

struct rendezvous_options {
  address where;
  rank_t size = 1;
  std::string secret;
  duration timeout = std::chrono::seconds{60};
  duration hello_timeout = std::chrono::seconds{5};
  duration reset_grace = std::chrono::seconds{5};
  /// A member's connection ended without a goodbye, or `report_exit` said so. Once per rank (as launched).
  std::function<void(rank_t)> on_loss;
};

class rendezvous {
 public:
  [[nodiscard]] static result<std::unique_ptr<rendezvous>> listen(rendezvous_options options);
  rendezvous(const rendezvous&) = delete;
  rendezvous& operator=(const rendezvous&) = delete;
  ~rendezvous();

  /// Where it listens, with the port that was picked.
  [[nodiscard]] const address& where() const noexcept { return where_; }

  /// Runs until every member has ended, or a stop is requested. Never throws.
  task<void> serve();
  /// Lets what has been decided reach the members, for a second at most; then the serving may be stopped.
  task<void> drain();

  /// The launcher saw this rank (as launched) end before its connection did.
  void report_exit(rank_t origin);

  struct counters {
    std::uint64_t strangers = 0;  ///< connections dropped before they had proved themselves
    std::uint64_t refused = 0;    ///< members that were told no
    std::uint64_t resets = 0;
  };
  [[nodiscard]] const counters& statistics() const noexcept { return counters_; }
  [[nodiscard]] bool complete() const noexcept { return table_.epoch != 0; }

 private:
  using shared_bytes = std::shared_ptr<const std::vector<std::byte>>;
  struct conversation {
    explicit conversation(unique_fd fd) noexcept : connection{std::move(fd)} {}
    message_connection connection;
    std::deque<shared_bytes> outbox;
    event output;
  };
  enum class presence { awaited, present, asked, left, dead, excluded };
  struct seat {
    presence state = presence::awaited;
    rank_t rank = no_rank;  // in the current epoch
    member_record record;
    conversation* talk = nullptr;
    [[nodiscard]] bool member() const noexcept { return state != presence::excluded; }
    [[nodiscard]] bool ended() const noexcept { return state == presence::left || state == presence::dead; }
  };

  rendezvous(rendezvous_options options, unique_fd listener);
  [[nodiscard]] std::string who() const;

  task<void> converse(unique_fd fd);
  task<result<hello>> identify(int fd);
  task<void> converse_with_member(conversation& talk, rank_t origin);
  task<void> converse_with_launcher(conversation& talk);
  task<void> write_outbox(conversation& talk);
  task<void> read_requests(conversation& talk, seat& from);
  task<void> give_up_at(time_point deadline);
  task<void> decide_at(time_point deadline, std::uint64_t epoch);

  [[nodiscard]] result<seat*> take_seat(const message& first, rank_t claimed, conversation& talk);
  void publish();
  void fail_all(const error& why);
  void handle_reset(seat& from, const message& request);
  void decide_if_heard();
  void decide();
  void mark_dead(seat& s);
  [[nodiscard]] shared_bytes loss_of(const seat& s) const;
  void check_finished();
  void forget_unsent(conversation& talk);
  void push(conversation& talk, shared_bytes bytes);
  void push_error(conversation& talk, const error& why);

  rendezvous_options options_;
  unique_fd listener_;
  address where_;
  scope* connections_ = nullptr;
  event finished_;
  half_open_limit half_open_{256};
  std::size_t unsent_ = 0;
  event all_sent_;
  std::vector<seat> seats_;  // by rank as launched
  std::vector<conversation*> watchers_;
  member_table table_;
  error failed_;
  bool resetting_ = false;
  counters counters_;
};

}  // namespace chorale
