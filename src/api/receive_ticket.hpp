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
  template <class Operation>
  friend class as_received_of;
  explicit started_receive(started running) noexcept : started{std::move(running)} {}
  template <class Awaiter>
  Awaiter awaiter() noexcept {
    return started::awaiter<Awaiter>();
  }
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

 private:
  template <class Operation>
  friend class as_received_of;
  template <class Awaiter>
  Awaiter awaiter() noexcept {
    return Awaiter{std::move(usable()), nullptr};
  }
};

template <class Operation>
class [[nodiscard]] as_received_of {
 public:
  explicit as_received_of(Operation operation) noexcept : operation_{std::move(operation)} {}
  [[nodiscard]] detail::receive_result_awaiter operator co_await() && noexcept {
    return operation_.template awaiter<detail::receive_result_awaiter>();
  }

 private:
  Operation operation_;
};

[[nodiscard]] inline as_received_of<receive_ticket> as_result(receive_ticket operation) noexcept {
  return as_received_of<receive_ticket>{std::move(operation)};
}
[[nodiscard]] inline as_received_of<started_receive> as_result(started_receive operation) noexcept {
  return as_received_of<started_receive>{std::move(operation)};
}

}  // namespace chorale
