#include <chorale/async/error.hpp>

#include <array>
#include <cerrno>
#include <cstring>

namespace chorale {
namespace {

struct description {
  errc code;
  std::string_view name;
  std::string_view meaning;
  std::string_view advice;
};

constexpr std::array descriptions{
    description{errc::ok, "ok", "no error", ""},
    description{errc::timed_out, "timed_out", "the deadline passed before the operation ended",
                "reset the lane, or give the operation more time"},
    description{errc::cancelled, "cancelled", "the operation was stopped on request",
                "reset the lane before using it again"},
    description{errc::dropped, "dropped",
                "a ticket was destroyed without being started, or a window without being closed",
                "start or await every operation whose ticket was taken; close windows on every rank"},
    description{errc::mismatch, "mismatch", "ranks made different calls for the same ticket",
                "make the same calls in the same order on every rank of the lane"},
    description{errc::deadlock, "deadlock", "operations wait for each other and none can end",
                "see the detail"},
    description{errc::peer_lost, "peer_lost", "a rank's or peer's process ended",
                "reset() the communicator among the survivors; an endpoint: connect again"},
    description{errc::peer_left, "peer_left", "a rank or peer had left",
                "let every rank finish its calls before it leaves"},
    description{errc::peer_unresponsive, "peer_unresponsive", "a rank gave no sign of life",
                "look whether it is stopped; CHORALE_PEER_TIMEOUT sets the patience"},
    description{errc::link_lost, "link_lost", "the connection to a rank or peer broke",
                "check the network, then reset(), or connect the endpoint again"},
    description{errc::protocol_error, "protocol_error", "a peer sent bytes that make no sense",
                "run the same chorale version on every rank"},
    description{errc::revoked, "revoked", "an earlier failure ended this lane or its epoch",
                "reset() before calling again"},
    description{errc::invalid_argument, "invalid_argument", "an argument is not usable", "see the detail"},
    description{errc::invalid_state, "invalid_state", "the object can not do that now", "see the detail"},
    description{errc::too_many_lanes, "too_many_lanes", "operations are in flight on too many lanes",
                "await some operations first"},
    description{errc::unsupported, "unsupported", "this build or machine can not do that", "see the detail"},
    description{errc::forked, "forked", "called in a fork child, which owns no communicator",
                "create communicators after fork, or exec"},
    description{errc::too_many_messages, "too_many_messages", "too many sends to one rank are under way",
                "await some of them first"},
    description{errc::bootstrap_failed, "bootstrap_failed", "the ranks could not find each other",
                "check CHORALE_ROOT and that every rank was started"},
    description{errc::secret_refused, "secret_refused", "the peer did not prove that it knows the secret",
                "give every rank the same CHORALE_SECRET, both endpoints the same secret"},
    description{errc::excluded, "excluded", "the others went on without this rank",
                "start again as a new member"},
    description{errc::no_decider, "no_decider", "the rendezvous that decides resets is gone",
                "restart the job"},
    description{errc::system_error, "system_error", "a system call failed", "see the detail"},
    description{errc::out_of_memory, "out_of_memory", "memory ran out", "use fewer or smaller buffers"},
    description{errc::gpu_error, "gpu_error", "a CUDA call failed", "see the detail"},
};

const description& describe(errc code) noexcept {
  for (const auto& d : descriptions)
    if (d.code == code) return d;
  static constexpr description unknown{errc::ok, "unknown", "unknown error", ""};
  return unknown;
}

class category final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "chorale"; }
  [[nodiscard]] std::string message(int code) const override {
    return std::string{describe(static_cast<errc>(code)).meaning};
  }
  /// Lets `ec == std::errc::timed_out` hold, so that generic code needs no chorale names.
  [[nodiscard]] std::error_condition default_error_condition(int code) const noexcept override {
    switch (static_cast<errc>(code)) {
      case errc::timed_out:
        return std::errc::timed_out;
      case errc::cancelled:
        return std::errc::operation_canceled;
      case errc::invalid_argument:
        return std::errc::invalid_argument;
      case errc::unsupported:
        return std::errc::operation_not_supported;
      case errc::out_of_memory:
        return std::errc::not_enough_memory;
      default:
        return {code, *this};
    }
  }
};

}  // namespace

const std::error_category& error_category() noexcept {
  static const category instance;
  return instance;
}

std::string_view name_of(errc e) noexcept { return describe(e).name; }

error error::from_os(int os_code, std::string what, rank_t culprit) {
  error e{os_code == ENOMEM ? errc::out_of_memory : errc::system_error, std::move(what), culprit};
  e.os_code_ = os_code;
  return e;
}

std::string error::message() const {
  const auto& d = describe(code_);
  std::string text{d.name};
  text += ": ";
  text += d.meaning;
  if (culprit_ != no_rank) text += " (rank " + std::to_string(culprit_) + ")";
  if (ticket_ != 0) text += ", operation " + std::to_string(ticket_);
  if (!detail_.empty()) text += ": " + detail_;
  if (os_code_ != 0) text += ": " + std::system_category().message(os_code_);
  if (!d.advice.empty() && d.advice != "see the detail") text += " — " + std::string{d.advice};
  return text;
}

std::string error::summary() const {
  const auto& d = describe(code_);
  std::string text{d.name};
  if (culprit_ != no_rank) text += " (rank " + std::to_string(culprit_) + ")";
  text += ": " + (detail_.empty() ? std::string{d.meaning} : detail_);
  if (os_code_ != 0) text += ": " + std::system_category().message(os_code_);
  return text;
}

failure::failure(chorale::error e)
    : std::system_error{make_error_code(e.code())}, why_{std::move(e)}, text_{why_.message()} {}

}  // namespace chorale
