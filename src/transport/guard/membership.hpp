// One rank's place in one communicator epoch, as its process's guard sees it.
//
// Made by `guard::join`; leaving scope ends it (announcing `left` first if `leave` was not called). While it
// lives, deaths, silence, leaving and revokes of the other members reach the sink. All methods may be called
// from any thread; `started`, `pending`, `done` and `cause` take no lock and make no system call, except that
// the first `pending` after a quiet time wakes the watch thread. In a fork child the object is inert: nothing
// is announced, `revoke` and `leave` give errc::forked, the destructor joins and tells nobody.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/transport/guard/guard_segment.hpp>
#include <chorale/transport/guard/owned_fd.hpp>
#include <chorale/transport/guard/revoke.hpp>
#include <chorale/transport/guard/sink.hpp>

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace chorale {

namespace guarding {
class member;
}

/// A member on the same host. The descriptors change hands.
struct host_mate {
  rank_t rank = no_rank;
  std::uint32_t slot = 0;
  pid_t pid = 0;     ///< as seen here (SO_PEERCRED); may be the own process's
  owned_fd pidfd;    ///< empty: pidfd_open(pid) is tried
  owned_fd bell_fd;  ///< the eventfd that is the mate's `membership_setup::bell_fd`
  /// A stream socket whose other end only the mate holds: its end-of-file tells of a
  /// death where neither robust futex nor pidfd is allowed. May be empty.
  owned_fd eof_fd;
};

/// A connected, authenticated stream socket to the guard of a `control_neighbours` rank on another host,
/// used for nothing else. The descriptor changes hands.
struct control_peer {
  rank_t rank = no_rank;
  owned_fd socket;
};

struct membership_setup {
  std::uint64_t communicator = 0;
  std::uint64_t epoch = 0;
  std::uint64_t nonce = 0;
  rank_t self = 0;
  rank_t size = 1;
  void* segment = nullptr;  ///< see guard_segment.hpp; null only if there are no host-mates
  std::uint32_t slot = 0;
  std::uint32_t slots = 1;
  owned_fd bell_fd;  ///< an eventfd (non-blocking, close-on-exec) of which every host-mate got a duplicate
  std::vector<host_mate> mates;     ///< without `self`
  std::vector<control_peer> links;  ///< to control_neighbours() that are no host-mates
  /// By rank: equal exactly for members of the same process, also across communicators, so that a loss seen
  /// in one communicator ends the others too. Empty: communicators learn separately.
  std::vector<std::uint64_t> processes;
};

/// How this process learns of a member's death.
enum class death_signal : std::uint8_t {
  own_process,   ///< the same process: there is nothing to learn
  robust_futex,  ///< 0.1–3 ms
  pidfd,         ///< after the victim's memory is torn down: up to a second
  end_of_file,   ///< likewise
  control_link,  ///< a remote rank with a link of its own
  report,        ///< a remote rank: its host-mates and neighbours tell
};

/// Names a pending operation until `done`.
struct pending_id {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
};

struct guard_counters {
  std::uint64_t foreign_frames = 0;     ///< dropped: another epoch or nonce
  std::uint64_t unroutable_frames = 0;  ///< dropped: the next hop has left or is full
  std::uint64_t questions_sent = 0;
  std::uint64_t answers_sent = 0;
};

class membership {
 public:
  membership(membership&&) noexcept;
  membership& operator=(membership&&) noexcept;
  ~membership();

  /// This rank noticed a failure: ends the lane or the epoch here and on every member. Returns at once; the
  /// sink hears of it from a guard thread, after it was forwarded. With revoke_scope::all a later cause is
  /// ignored. errc::invalid_argument for a culprit out of range, errc::forked in a fork child.
  result<void> revoke(revoke_scope scope, std::uint64_t lane, errc cause, rank_t culprit,
                      std::uint64_t ticket);

  /// The first cause with revoke_scope::all, if there is one.
  [[nodiscard]] std::optional<chorale::revoke> cause() const noexcept;

  /// Announces `left`: operations after `last_ticket` go without this rank. Death and silence of this rank
  /// are no failure any more. Idempotent. errc::forked in a fork child.
  result<void> leave(std::uint64_t last_ticket);

  /// The engine started operation `ticket`: what the destructor announces as the last one.
  void started(std::uint64_t ticket) noexcept;

  /// Operation `ticket` of `lane` has waited for `waits_for` since `since` (for operations that outlive the
  /// spin phase). `waits_for` may name any ranks of the communicator; the own rank is ignored.
  [[nodiscard]] pending_id pending(std::uint64_t lane, std::uint64_t ticket,
                                   std::span<const rank_t> waits_for,
                                   std::chrono::steady_clock::time_point since) noexcept;
  void done(pending_id operation) noexcept;

  /// What `rank`'s guard last said about an operation this rank waits for: "not called yet" for messages.
  [[nodiscard]] call_state last_answer(rank_t rank) const noexcept;
  [[nodiscard]] member_state state_of(rank_t rank) const noexcept;
  [[nodiscard]] death_signal signal_for(rank_t rank) const noexcept;
  /// True once the process of `rank` has certainly ended and writes nowhere any more (pidfd or end-of-file
  /// has fired): what frees quarantined memory. The futex fires earlier and is not enough. Never true for a
  /// host-mate of whom there is neither.
  [[nodiscard]] bool gone(rank_t rank) const noexcept;
  [[nodiscard]] guard_counters counters() const noexcept;

 private:
  friend class guard;
  explicit membership(std::shared_ptr<guarding::member> state) noexcept;
  std::shared_ptr<guarding::member> state_;
};

}  // namespace chorale
