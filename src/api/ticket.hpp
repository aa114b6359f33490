// A call that has its place in the order and has not ended: what communicators return.
//
//   co_await comm.all_reduce(grad, sum);                     // starts and awaits; throws `failure`
//   auto r = co_await as_result(comm.all_reduce(grad, sum)); // result<void> instead
//   auto op = comm.all_reduce(grad, sum).start();            // starts now
//   co_await std::move(op);                                  // awaits later
//
// The call takes the ticket, not the await: calls match across ranks in the order in which they were made on
// their lane. Every ticket must be started or awaited; destroying one unstarted ends its lane on every rank
// with errc::dropped, so that peers do not wait for it. Dropping a `started` operation is fine: the
// communicator finishes it, and the buffers stay in use until then. Thread: the one of the communicator's
// engine. Buffers are the caller's until the await ends, with a value or an error; then nothing reads or
// writes them any more.
#pragma once

#include <chorale/async/suspension.hpp>
#include <chorale/collective/call.hpp>
#include <chorale/collective/completion.hpp>

#include <concepts>
#include <coroutine>
#include <utility>

namespace chorale {

class core;
class in_flight;
struct lane_state;

namespace detail {

/// A place in a lane's order, and what is to happen there. Empty after it was moved from or started: it goes
/// through several hands on the way of every call, so a move touches what it must and no more.
struct call_place {
  call_place() = default;
  call_place(call_place&& other) noexcept
      : inside{std::exchange(other.inside, nullptr)},
        lane{other.lane},
        number{other.number},
        what{std::move(other.what)} {
    if (other.refused) refused = std::exchange(other.refused, {});
  }
  call_place& operator=(call_place&& other) noexcept {
    std::swap(inside, other.inside);
    std::swap(lane, other.lane);
    std::swap(number, other.number);
    std::swap(what, other.what);
    std::swap(refused, other.refused);
    return *this;
  }

  core* inside = nullptr;
  lane_state* lane = nullptr;
  std::uint64_t number = 0;
  call what;
  error refused;  ///< set when the call was never given a place
};

in_flight* start_call(call_place& place);
void drop_call(call_place& place) noexcept;
void release(in_flight& op) noexcept;
[[nodiscard]] bool finished(const in_flight& op) noexcept;
/// Whether it has ended, after a look for what it waits for; false also when an await has to let others run.
[[nodiscard]] bool may_resume_at_once(in_flight& op) noexcept;
/// Takes the outcome, and what a receive got if that is asked, and gives the operation back.
[[nodiscard]] error take_outcome(in_flight& op, received* came);

class operation_awaiter : public suspension, private completion_observer {
 public:
  operation_awaiter(call_place&& place, in_flight* started) noexcept
      : suspension{on_stop}, completion_observer{on_end}, place_{std::move(place)}, op_{started} {}
  operation_awaiter(const operation_awaiter&) = delete;
  operation_awaiter& operator=(const operation_awaiter&) = delete;
  ~operation_awaiter() {
    if (op_)
      release(*op_);
    else
      drop_call(place_);
  }

  [[nodiscard]] bool await_ready() {
    if (place_.refused) return true;
    if (!op_) op_ = start_call(place_);
    return !op_ || may_resume_at_once(*op_);
  }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> waiting) noexcept {
    return wait(waiting, environment_of(waiting));
  }
  void await_resume() {
    error outcome = take();
    if (outcome) throw failure{std::move(outcome)};
  }

 protected:
  [[nodiscard]] error take(received* came = nullptr);

 private:
  bool wait(std::coroutine_handle<> waiting, const environment* env) noexcept;
  static void on_stop(suspension& base) noexcept;
  static void on_end(completion_observer& base) noexcept;
  call_place place_;
  in_flight* op_;
};

class result_awaiter : public operation_awaiter {
 public:
  using operation_awaiter::operation_awaiter;
  [[nodiscard]] result<void> await_resume() {
    error outcome = take();
    if (outcome) return outcome;
    return {};
  }
};

}  // namespace detail

/// An operation under way.
class [[nodiscard]] started {
 public:
  started(started&& other) noexcept
      : place_{std::move(other.place_)}, op_{std::exchange(other.op_, nullptr)} {}
  started& operator=(started&& other) noexcept {
    std::swap(place_, other.place_);
    std::swap(op_, other.op_);
    return *this;
  }
  ~started() {
    if (op_) detail::release(*op_);
  }
  /// Whether it has ended, well or badly: an await then returns at once.
  [[nodiscard]] bool ready() const noexcept { return !op_ || detail::finished(*op_); }

  [[nodiscard]] detail::operation_awaiter operator co_await() && noexcept {
    return awaiter<detail::operation_awaiter>();
  }

 private:
  friend class ticket;
  friend class started_receive;
  template <class Operation, class Awaiter>
  friend class as_result_of;
  started(detail::call_place&& place, in_flight* op) noexcept : place_{std::move(place)}, op_{op} {}
  template <class Awaiter>
  Awaiter awaiter() noexcept {
    if (!op_ && !place_.refused)
      place_.refused =
          error{errc::invalid_state, "an operation was awaited twice, or after it was moved from"};
    return Awaiter{std::move(place_), std::exchange(op_, nullptr)};
  }
  detail::call_place place_;
  in_flight* op_;
};

/// An operation not started yet.
class [[nodiscard]] ticket {
 public:
  /// For communicators.
  explicit ticket(detail::call_place&& place) noexcept : place_{std::move(place)} {}
  ticket(ticket&& other) noexcept = default;
  ticket& operator=(ticket&& other) noexcept = default;  // swaps
  ~ticket() { detail::drop_call(place_); }

  /// Starts the operation now. errc::invalid_state, when it is awaited, for a ticket that was used already.
  started start() && {
    detail::call_place place = std::move(usable());
    in_flight* op = place.refused ? nullptr : detail::start_call(place);
    return {std::move(place), op};
  }
  [[nodiscard]] detail::operation_awaiter operator co_await() && noexcept {
    return awaiter<detail::operation_awaiter>();
  }

 private:
  friend class receive_ticket;
  template <class Operation, class Awaiter>
  friend class as_result_of;
  template <class Awaiter>
  Awaiter awaiter() noexcept {
    return Awaiter{std::move(usable()), nullptr};
  }
  /// The place, to be moved from.
  detail::call_place& usable() noexcept {
    if (!place_.inside && !place_.refused)
      place_.refused = error{errc::invalid_state, "a ticket was started twice, or after it was moved from"};
    return place_;
  }
  detail::call_place place_;
};

template <class Operation, class Awaiter = detail::result_awaiter>
class [[nodiscard]] as_result_of {
 public:
  explicit as_result_of(Operation operation) noexcept : operation_{std::move(operation)} {}
  [[nodiscard]] Awaiter operator co_await() && noexcept { return operation_.template awaiter<Awaiter>(); }

 private:
  Operation operation_;
};

[[nodiscard]] inline as_result_of<ticket> as_result(ticket operation) noexcept {
  return as_result_of<ticket>{std::move(operation)};
}
[[nodiscard]] inline as_result_of<started> as_result(started operation) noexcept {
  return as_result_of<started>{std::move(operation)};
}

/// Two calls as arguments of one function are made in an order that compilers choose differently.
template <std::derived_from<ticket> First, std::derived_from<ticket> Second, class... Others>
void when_all(First, Second, Others...) {
  static_assert(sizeof...(Others) == ~std::size_t{0},
                "calls of one lane as direct arguments have no defined order: use comm.batch(all_reduce(a), "
                "all_reduce(b)), or start() each in a statement of its own, or calls on different lanes");
}

}  // namespace chorale
