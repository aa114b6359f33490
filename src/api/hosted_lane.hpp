// Lanes and planned calls for threads that are not the engine's: what `hosted_communicator` gives out.
//
//   chorale::hosted_lane mine = comm.lane(request);
//   mine.all_reduce(part, chorale::sum, asio::use_awaitable);
//
// Every call takes a completion token. Handles are copied and used on any thread. The calls that one thread
// (or one strand) makes on a lane take their places in the order in which it makes them, also through several
// handles and plans of that lane; calls of different threads on one lane are ordered only as those threads
// are, one waiting for the other to have made its call. Ranks must agree, so either one thread owns a lane at
// a time, or each thread has lanes of its own. Different lanes need no order. The last handle ends the key
// for this epoch once its calls have ended; handles go before the communicator does.
#pragma once

#include <chorale/api/communicator.hpp>
#include <chorale/api/engine_cell.hpp>

#include <span>
#include <type_traits>
#include <utility>

namespace chorale {

class hosted_plan {
 public:
  /// From any thread; the limit counts from here.
  template <foreign_token Token>
  auto run(deadline limit, Token&& token) const {
    limit = deadline{limit.from(steady_now())};
    return detail::call_with_token(
        planned_.loop(), [planned = planned_, limit] { return planned->run(limit); },
        std::forward<Token>(token));
  }
  template <foreign_token Token>
  auto run(Token&& token) const {
    return run(deadline{}, std::forward<Token>(token));
  }

 private:
  friend class hosted_lane;
  friend class hosted_communicator;
  explicit hosted_plan(engine_cell<planned_call> planned) noexcept : planned_{std::move(planned)} {}
  engine_cell<planned_call> planned_;
};

class hosted_lane : public collective_calls<hosted_lane> {
 public:
  /// A call with fixed buffers, to be made again and again on this lane.
  [[nodiscard]] hosted_plan plan(described_call described) const {
    return hosted_plan{engine_cell<planned_call>{
        lane_.loop(), [on = lane_, described = std::move(described)] { return on->plan(described); }}};
  }

  /// Several calls, numbered left to right, then a completion token; see `lane::batch`.
  template <class... Args>
    requires detail::call_arguments<Args...>::has_token
  auto batch(Args&&... calls_and_token) const {
    return detail::batch_and_last(
        [this](auto calls, auto&& token) {
          return detail::call_with_token(
              lane_.loop(),
              [on = lane_, calls = std::move(calls)] {
                return on->batch(std::span<const described_call>{calls});
              },
              std::forward<decltype(token)>(token));
        },
        std::forward<Args>(calls_and_token)...);
  }

  /// See `lane::reset`. For all copies of this handle.
  template <foreign_token Token>
  auto reset(deadline limit, Token&& token) const {
    limit = deadline{limit.from(steady_now())};
    return detail::call_with_token(
        lane_.loop(), [on = lane_, limit] { return on->reset(limit); }, std::forward<Token>(token));
  }
  template <foreign_token Token>
  auto reset(Token&& token) const {
    return reset(deadline{}, std::forward<Token>(token));
  }

  /// Any described call.
  template <foreign_token Token>
  auto call_with(described_call described, deadline limit, Token&& token) const {
    return detail::call_with_token(
        lane_.loop(),
        [on = lane_, described = std::move(described), limit] { return on->place(described, limit); },
        std::forward<Token>(token));
  }

 private:
  friend class collective_calls<hosted_lane>;
  friend class hosted_communicator;
  explicit hosted_lane(engine_cell<lane> on) noexcept : lane_{std::move(on)} {}
  template <class Described>
  void place(const Described&, deadline) const {
    static_assert(sizeof(Described) == 0,
                  "a call on a hosted lane takes a completion token behind its arguments: one of Asio's, "
                  "chorale::block to wait for it, or std::nothrow to wait and get a result");
  }
  engine_cell<lane> lane_;
};

}  // namespace chorale
