// Several calls as one: what `communicator::batch` and `lane::batch` run.
#pragma once

#include <chorale/api/description.hpp>
#include <chorale/api/ticket.hpp>
#include <chorale/async/task.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::detail {

/// Starts all and awaits all; throws the first failure in the order of the calls when every one has ended.
[[nodiscard]] task<void> run_batch(std::vector<ticket> calls);

/// `use(the calls in an array, the last)` for arguments that are calls and then a completion token or a
/// stream.
template <class Use, class... Args>
auto batch_and_last(const Use& use, Args&&... args) {
  const std::tuple<Args&&...> all{std::forward<Args>(args)...};
  constexpr std::size_t n = sizeof...(Args) - 1;
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    static_assert(
        (std::same_as<std::remove_cvref_t<std::tuple_element_t<I, std::tuple<Args...>>>, described_call> &&
         ...),
        "a batch takes calls as chorale/api/description.hpp describes them, then a completion token or a "
        "stream");
    return use(std::array<described_call, n>{std::get<I>(all)...},
               std::forward<std::tuple_element_t<n, std::tuple<Args...>>>(std::get<n>(all)));
  }(std::make_index_sequence<n>{});
}

}  // namespace chorale::detail
