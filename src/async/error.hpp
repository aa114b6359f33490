// What can go wrong, and the one place where its text is made.
//
// `errc` names the cause, `error` carries it together with whom it concerns: the rank at fault, the ticket of
// the operation, the operating system's code and a sentence of detail. An `error` is a plain value: copying
// it may allocate (the detail), which happens on failure paths only. Every message says what happened, to
// whom, and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace chorale {

/// Position of a process (or GPU) in a communicator, 0 … size − 1.
using rank_t = std::int32_t;
/// "No rank in particular": the cause is local or not yet known.
inline constexpr rank_t no_rank = -1;

/// Causes of failure. The numeric values travel between ranks in revoke messages: append, never renumber.
enum class errc : std::int32_t {
  ok = 0,
  // scope: the lane only
  timed_out = 1,  ///< the deadline passed before the operation ended
  cancelled = 2,  ///< a stop was requested
  dropped = 3,    ///< a ticket was destroyed unstarted, or a window unclosed
  mismatch = 4,   ///< ranks made different calls for one ticket
  deadlock = 5,   ///< streams wait for each other in a cycle
  // scope: the communicator
  peer_lost = 16,          ///< a rank's process ended
  peer_left = 17,          ///< a rank left in good order before this operation
  peer_unresponsive = 18,  ///< a rank's guard gave no sign of life for CHORALE_PEER_TIMEOUT
  link_lost = 19,          ///< the connection to a rank broke while its process may still live
  protocol_error = 20,     ///< bytes arrived that no correct peer sends
  revoked = 21,            ///< an earlier failure ended this communicator's epoch
  // scope: the call
  invalid_argument = 32,
  invalid_state = 33,
  too_many_lanes = 34,
  unsupported = 35,
  forked = 36,             ///< called in a fork child, which owns nothing
  too_many_messages = 37,  ///< more sends to one rank are under way than it is to remember
  // set-up and membership
  bootstrap_failed = 48,
  secret_refused = 49,  ///< a hello did not prove knowledge of the secret
  excluded = 50,        ///< a reset went on without this rank
  no_decider = 51,      ///< the rendezvous that decides resets is gone
  // the machine
  system_error = 64,  ///< a system call failed; `error::os_code` says how
  out_of_memory = 65,
  gpu_error = 66,  ///< a CUDA call failed; the detail names it
};

[[nodiscard]] const std::error_category& error_category() noexcept;
[[nodiscard]] inline std::error_code make_error_code(errc e) noexcept {
  return {static_cast<int>(e), error_category()};
}

/// The short name of a cause, as written in logs: "peer_lost".
[[nodiscard]] std::string_view name_of(errc e) noexcept;

class error {
 public:
  error() = default;
  explicit error(errc code, std::string detail = {}, rank_t culprit = no_rank)
      : code_{code}, culprit_{culprit}, detail_{std::move(detail)} {}

  /// A failed system call: `what` is the call and its object, e.g. "connect 10.0.0.2:7000".
  [[nodiscard]] static error from_os(int os_code, std::string what, rank_t culprit = no_rank);

  [[nodiscard]] errc code() const noexcept { return code_; }
  [[nodiscard]] rank_t culprit() const noexcept { return culprit_; }
  [[nodiscard]] int os_code() const noexcept { return os_code_; }
  [[nodiscard]] const std::string& detail() const noexcept { return detail_; }
  /// The ticket number of the operation that ended so; 0 when none is concerned.
  [[nodiscard]] std::uint64_t ticket() const noexcept { return ticket_; }
  error& with_ticket(std::uint64_t ticket) noexcept {
    ticket_ = ticket;
    return *this;
  }

  /// One line for a person: cause, rank, operation, detail, advice.
  [[nodiscard]] std::string message() const;
  /// Name, rank and detail, for the text of another error that this one led to: "peer_lost (rank 2): it is
  /// dying: signal 9".
  [[nodiscard]] std::string summary() const;

  explicit operator bool() const noexcept { return code_ != errc::ok; }
  friend bool operator==(const error& e, errc c) noexcept { return e.code_ == c; }

 private:
  errc code_ = errc::ok;
  rank_t culprit_ = no_rank;
  int os_code_ = 0;
  std::uint64_t ticket_ = 0;
  std::string detail_;
};

/// What `co_await` throws where no `as_result` asks for a value.
class failure : public std::system_error {
 public:
  explicit failure(chorale::error e);
  [[nodiscard]] const chorale::error& why() const noexcept { return why_; }
  /// The error's message, without what std::system_error would add to it.
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  chorale::error why_;
  std::string text_;
};

}  // namespace chorale

template <>
struct std::is_error_code_enum<chorale::errc> : std::true_type {};
