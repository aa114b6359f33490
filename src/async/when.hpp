// Several tasks at once.
//
// when_all: all end before it returns; the first failure stops the others and is thrown. Values come back as
// a tuple, std::monostate for void. when_any: the first to end, well or badly, stops the others, and they are
// awaited; every outcome is kept, since more than one may have succeeded.
#pragma once

#include <chorale/async/as_result.hpp>
#include <chorale/async/scope.hpp>

#include <tuple>
#include <variant>

namespace chorale {

namespace detail {

template <class T>
using regular = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

template <class T>
task<void> keep_value(task<T> work, std::optional<regular<T>>& slot) {
  if constexpr (std::is_void_v<T>) {
    co_await std::move(work);
    slot.emplace();
  } else {
    slot.emplace(co_await std::move(work));
  }
}

template <class T>
task<void> keep_outcome(scope& race, std::size_t index, std::optional<std::size_t>& winner, task<T> work,
                        std::optional<result<T>>& slot) {
  task<result<T>> guarded = as_result(std::move(work));
  slot.emplace(co_await std::move(guarded));
  if (!winner) winner = index;
  race.request_stop();
}

}  // namespace detail

template <class... Ts>
task<std::tuple<detail::regular<Ts>...>> when_all(task<Ts>... work) {
  const environment& here = co_await this_environment{};
  scope children{here};
  std::tuple<std::optional<detail::regular<Ts>>...> slots;
  std::apply([&](auto&... slot) { (children.spawn(detail::keep_value(std::move(work), slot)), ...); }, slots);
  co_await children.join();
  co_return std::apply([](auto&... slot) { return std::tuple<detail::regular<Ts>...>{std::move(*slot)...}; },
                       slots);
}

template <class... Ts>
struct when_any_result {
  std::size_t first;                   ///< index of the task that ended first
  std::tuple<result<Ts>...> outcomes;  ///< what each ended with; losers usually errc::cancelled
};

template <class... Ts>
task<when_any_result<Ts...>> when_any(task<Ts>... work) {
  const environment& here = co_await this_environment{};
  scope race{here};
  std::tuple<std::optional<result<Ts>>...> slots;
  std::optional<std::size_t> winner;
  std::size_t index = 0;
  std::apply(
      [&](auto&... slot) {
        (race.spawn(detail::keep_outcome(race, index++, winner, std::move(work), slot)), ...);
      },
      slots);
  co_await race.join();
  co_return std::apply(
      [&](auto&... slot) {
        return when_any_result<Ts...>{*winner, std::tuple<result<Ts>...>{std::move(*slot)...}};
      },
      slots);
}

}  // namespace chorale
