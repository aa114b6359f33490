// A communicator for plain code without coroutines: every call waits for its end.
//
//   chorale::blocking_communicator comm;
//   comm.all_reduce(grad, chorale::avg);                                      // throws `failure`
//   comm.all_reduce(grad, chorale::avg, chorale::deadline{50ms});             // … errc::timed_out
//   chorale::result<> r = comm.all_reduce(grad, chorale::avg, std::nothrow);  // says it instead
//
// Has an engine and a thread of its own; joins in the constructor and leaves in the destructor. Calls may
// come from several threads: hosted_lane.hpp says how they are ordered; threads that work at once take lanes
// of their own. Other completion tokens are taken too, for calls that do not wait. Inside a coroutine of an
// engine every call is refused: see blocking.hpp. `reset`, moving and destroying need that no call is under
// way; lanes, plans and children go before.
#pragma once

#include <chorale/api/blocking.hpp>
#include <chorale/api/hosted_communicator.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace chorale {

/// A planned call: see planned_call.hpp.
class blocking_plan {
 public:
  void run(deadline limit = {}) const { planned_.run(limit, block); }
  template <foreign_token Token>
  auto run(deadline limit, Token&& token) const {
    return planned_.run(limit, std::forward<Token>(token));
  }
  template <foreign_token Token>
  auto run(Token&& token) const {
    return planned_.run(std::forward<Token>(token));
  }

 private:
  friend class blocking_lane;
  explicit blocking_plan(hosted_plan planned) noexcept : planned_{std::move(planned)} {}
  hosted_plan planned_;
};

class blocking_lane : public collective_calls<blocking_lane> {
 public:
  /// Any described call.
  void place(const described_call& described, deadline limit = {}) const {
    lane_.call_with(described, limit, block);
  }
  template <foreign_token Token>
  auto call_with(described_call described, deadline limit, Token&& token) const {
    return lane_.call_with(std::move(described), limit, std::forward<Token>(token));
  }
  /// See `lane::reset`.
  void reset(deadline limit = {}) const { lane_.reset(limit, block); }
  /// Several calls, numbered left to right and run together; returns when all have ended.
  template <std::same_as<described_call>... Calls>
  void batch(const Calls&... calls) const {
    lane_.batch(calls..., block);
  }
  template <class... Args>
    requires detail::call_arguments<Args...>::has_token
  auto batch(Args&&... calls_and_token) const {
    return lane_.batch(std::forward<Args>(calls_and_token)...);
  }
  [[nodiscard]] blocking_plan plan(described_call described) const {
    return blocking_plan{lane_.plan(std::move(described))};
  }

 private:
  friend class blocking_communicator;
  explicit blocking_lane(hosted_lane on) noexcept : lane_{std::move(on)} {}
  hosted_lane lane_;
};

class blocking_communicator : public collective_calls<blocking_communicator> {
 public:
  /// Throws as `communicator::join` does, and errc::invalid_state inside a coroutine of an engine.
  explicit blocking_communicator(communicator_options options = {});

  [[nodiscard]] rank_t rank() const noexcept { return (*hosted_)->rank(); }
  [[nodiscard]] rank_t size() const noexcept { return (*hosted_)->size(); }
  [[nodiscard]] rank_t launched_as() const noexcept { return (*hosted_)->launched_as(); }
  [[nodiscard]] std::uint64_t epoch_number() const noexcept { return (*hosted_)->epoch_number(); }
  /// What ended this epoch; errc::ok while nothing has.
  [[nodiscard]] error cause() const;

  /// Any described call.
  void place(const described_call& described, deadline limit = {}) const { own_->place(described, limit); }
  template <foreign_token Token>
  auto call_with(described_call described, deadline limit, Token&& token) const {
    return own_->call_with(std::move(described), limit, std::forward<Token>(token));
  }
  template <class... Args>
  auto batch(Args&&... calls_and_perhaps_token) const {
    return own_->batch(std::forward<Args>(calls_and_perhaps_token)...);
  }
  [[nodiscard]] blocking_plan plan(described_call described) const {
    return own_->plan(std::move(described));
  }
  [[nodiscard]] blocking_lane lane(std::uint64_t key) const { return blocking_lane{hosted_->lane(key)}; }

  [[nodiscard]] std::optional<blocking_communicator> split(std::int64_t colour, std::int64_t key = 0,
                                                           deadline limit = {}) const;
  /// All ranks once more, with an order of calls of its own.
  [[nodiscard]] blocking_communicator dup(deadline limit = {}) const;
  void reset();
  /// The communicator's own lane begins anew: see `lane::reset`.
  void reset_lane(deadline limit = {});

  /// For tasks on its engine, and for tokens.
  [[nodiscard]] hosted_communicator& hosted() noexcept { return *hosted_; }

 private:
  explicit blocking_communicator(hosted_communicator joined);
  std::optional<hosted_communicator> hosted_;
  std::optional<blocking_lane> own_;  // goes before what it stands on
};

}  // namespace chorale
