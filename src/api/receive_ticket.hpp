// A receive that has its place and has not ended: a ticket whose await tells who sent what.
//
//   chorale::received got = co_await comm.recv(buffer, chorale::any_source, chorale::any_tag);
//   auto r = co_await as_result(comm.recv(buffer, 2));  // result<received>
//
// Otherwise a `ticket`, and one where a ticket is wanted.
#pragma once

#include <chorale/api/ticket.hpp>
#include <chorale/async/result.hpp>

#include <utility>

namespace chorale {

namespace detail {

class receive_awaiter : public operation_awaiter {
 public:
  using operation_awaiter::operation_awaiter;
  received await_resume() {
    received came;
    error outcome = take(&came);
    if (outcome) throw failure{std::move(outcome)};
    return came;
  }
};

class receive_result_awaiter : public operation_awaiter {
 public:
  using operation_awaiter::operation_awaiter;
  [[nodiscard]] result<received> await_resume() {
    received came;
    error outcome = take(&came);
    if (outcome) return outcome;
    return came;
  }
};

}  // namespace detail

/// A receive under way.
class [[nodiscard]] started_receive : public started {
 public:
  [[nodiscard]] detail::receive_awaiter operator co_await() && noexcept {
    return awaiter<detail::receive_awaiter>();
  }

 private:
  friend class receive_ticket;
  explicit started_receive(started running) noexcept : started{std::move(running)} {}
};

/// A receive not started yet.
class [[nodiscard]] receive_ticket : public ticket {
 public:
  /// For communicators.
  explicit receive_ticket(ticket placed) noexcept : ticket{std::move(placed)} {}
  started_receive start() && { return started_receive{static_cast<ticket&&>(*this).start()}; }
  [[nodiscard]] detail::receive_awaiter operator co_await() && noexcept {
    return awaiter<detail::receive_awaiter>();
  }
};

[[nodiscard]] inline as_result_of<receive_ticket, detail::receive_result_awaiter> as_result(
    receive_ticket operation) noexcept {
  return as_result_of<receive_ticket, detail::receive_result_awaiter>{std::move(operation)};
}
[[nodiscard]] inline as_result_of<started_receive, detail::receive_result_awaiter> as_result(
    started_receive operation) noexcept {
  return as_result_of<started_receive, detail::receive_result_awaiter>{std::move(operation)};
}

}  // namespace chorale
