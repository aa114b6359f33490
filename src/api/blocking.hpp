// Completion tokens for threads that wait: plain code without coroutines.
//
//   comm->all_reduce(grad, chorale::sum, chorale::block);                      // throws `failure`
//   chorale::result<> r = comm->all_reduce(grad, chorale::sum, std::nothrow);  // says it instead
//
// The call is made, and returns when it has ended; a deadline before the token bounds that. For
// `hosted_communicator`, its lanes and plans; chorale/blocking.hpp has a communicator whose every call waits
// by itself. On a thread that runs an engine, inside a coroutine of it, that engine would stand still
// meanwhile: refused there with errc::invalid_state, before the call takes its place. In a fork child
// errc::forked.
#pragma once

#include <chorale/api/foreign_call.hpp>
#include <chorale/api/token_traits.hpp>
#include <chorale/async/result.hpp>

#include <exception>
#include <new>
#include <type_traits>
#include <utility>

namespace chorale {

struct block_t {};
inline constexpr block_t block{};

namespace detail {

/// Why this thread may not wait; errc::ok if it may.
[[nodiscard]] error refusal_to_block();
/// Begins the call and returns its outcome when it is quiet.
[[nodiscard]] error wait_for(foreign_call& call);

template <class Maker>
error block_on_call(engine& loop, Maker maker) {
  if (error why = refusal_to_block()) return why;
  const foreign_call_handle call = make_foreign_call(loop, std::move(maker));
  return wait_for(*call.operator->());
}

template <class Maker>
made_by<Maker> block_on_task(engine& loop, Maker maker) {
  if (error why = refusal_to_block()) throw failure{std::move(why)};
  const auto call = make_foreign_task(loop, std::move(maker));
  const error outcome = wait_for(*call.operator->());
  if (std::exception_ptr failed = call->failed(outcome)) std::rethrow_exception(std::move(failed));
  if constexpr (!std::is_void_v<made_by<Maker>>) return *std::move(call->value());
}

}  // namespace detail

template <>
struct token_traits<block_t> {
  static constexpr bool supported = true;
  template <class Maker>
  static void call(engine& loop, Maker maker, block_t) {
    if (error why = detail::block_on_call(loop, std::move(maker))) throw failure{std::move(why)};
  }
  template <class Maker>
  static auto run(engine& loop, Maker maker, block_t) {
    return detail::block_on_task(loop, std::move(maker));
  }
};

template <>
struct token_traits<std::nothrow_t> {
  static constexpr bool supported = true;
  template <class Maker>
  static result<void> call(engine& loop, Maker maker, std::nothrow_t) {
    if (error why = detail::block_on_call(loop, std::move(maker))) return why;
    return {};
  }
  /// Failures become results; other exceptions stay exceptions.
  template <class Maker>
  static result<detail::made_by<Maker>> run(engine& loop, Maker maker, std::nothrow_t) {
    try {
      if constexpr (std::is_void_v<detail::made_by<Maker>>) {
        detail::block_on_task(loop, std::move(maker));
        return {};
      } else {
        return detail::block_on_task(loop, std::move(maker));
      }
    } catch (const failure& f) {
      return f.why();
    }
  }
};

}  // namespace chorale
