// The seam for completion tokens of other frameworks: how `comm.barrier(token)` finds its adapter.
//
// An adapter's header specialises `token_traits` with `supported = true` and
// `call(engine&, maker of the ticket, token)`. Nothing else of chorale knows a token.
#pragma once

#include <chorale/async/clock.hpp>

#include <type_traits>

namespace chorale {

template <class Token>
struct token_traits {
  static constexpr bool supported = false;
};

template <class Token>
concept foreign_token = !std::is_same_v<std::remove_cvref_t<Token>, deadline> &&
                        token_traits<std::remove_cvref_t<Token>>::supported;

}  // namespace chorale
