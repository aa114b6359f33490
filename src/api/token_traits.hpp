// The seam for completion tokens: how a call made from any thread comes back to its caller.
//
// A framework's header specialises `token_traits` with `supported = true` and two functions:
// `call(engine&, maker, token)`, where `maker()` returns the ticket of an operation (or the task of a batch),
// and `run(engine&, maker, token)`, where it returns a task with a value of its own. Makers run on the
// engine's thread, once. Nothing else of chorale knows a token. Those there are: asio.hpp, boost_asio.hpp,
// blocking.hpp.
#pragma once

#include <chorale/async/clock.hpp>

#include <type_traits>
#include <utility>

namespace chorale {

class engine;

template <class Token>
struct token_traits {
  static constexpr bool supported = false;
};

template <class Token>
concept foreign_token = !std::is_same_v<std::remove_cvref_t<Token>, deadline> &&
                        token_traits<std::remove_cvref_t<Token>>::supported;

namespace detail {

template <class Maker, class Token>
auto call_with_token(engine& loop, Maker maker, Token&& token) {
  return token_traits<std::remove_cvref_t<Token>>::call(loop, std::move(maker), std::forward<Token>(token));
}
template <class Maker, class Token>
auto run_with_token(engine& loop, Maker maker, Token&& token) {
  return token_traits<std::remove_cvref_t<Token>>::run(loop, std::move(maker), std::forward<Token>(token));
}

}  // namespace detail

}  // namespace chorale
