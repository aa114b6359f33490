// Every collective as a method, for communicators and lanes alike.
//
//   comm.all_gather(mine, all)                                     → ticket
//   comm.all_gather(mine, all, chorale::deadline{50ms})            → ticket that ends by then
//   comm.all_gather(mine, all, chorale::deadline{50ms}, token)     → what the token's framework makes of it
//
//   comm.all_gather(mine, all, chorale::on(stream))                → gpu_ticket: GPU memory, in stream order
//
// The arguments are those of the description of the same name (description.hpp says what each collective does
// with them), then, if wanted, a deadline, then, on communicators, a stream (gpu.hpp) or a completion token
// (asio.hpp). A deadline counts from the call. With a token the call may come from any thread.
#pragma once

#include <chorale/api/description.hpp>
#include <chorale/api/receive_ticket.hpp>
#include <chorale/api/ticket.hpp>
#include <chorale/api/token_traits.hpp>
#include <chorale/async/clock.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale {

namespace detail {

/// Where the arguments of a description end in a call's.
template <class... Args>
struct call_arguments {
  template <std::size_t I>
  using at = std::remove_cvref_t<std::tuple_element_t<I, std::tuple<Args...>>>;
  static consteval std::size_t count_before_token() {
    if constexpr (sizeof...(Args) == 0)
      return 0;
    else
      return sizeof...(Args) - (foreign_token<at<sizeof...(Args) - 1>> ? 1 : 0);
  }
  /// Deadline and stream, in any order.
  static consteval std::size_t count_before_extras() {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      std::size_t n = sizeof...(I);
      const bool extra[] = {(std::is_same_v<at<I>, deadline> || std::is_same_v<at<I>, on>)..., false};
      while (n > 0 && extra[n - 1]) --n;
      return n;
    }(std::make_index_sequence<count_before_token()>{});
  }
  /// Where the extra of this type is; the number of all arguments if there is none.
  template <class Extra>
  static consteval std::size_t index_of() {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      std::size_t found = sizeof...(Args);
      static_cast<void>(
          ((std::is_same_v<at<count_before_extras() + I>, Extra> ? (found = count_before_extras() + I, true)
                                                                 : false) ||
           ...));
      return found;
    }(std::make_index_sequence<count_before_token() - count_before_extras()>{});
  }
  template <class Extra>
  static constexpr bool has = index_of<Extra>() != sizeof...(Args);
  static constexpr bool has_token = count_before_token() != sizeof...(Args);
  static constexpr bool has_device_memory = (device_buffer<Args> || ...);
};

template <class Describe, class All, std::size_t... I>
described_call describe_with(const Describe& describe, const All& all, std::index_sequence<I...>) {
  using fitting = std::is_invocable<const Describe&, std::tuple_element_t<I, All>...>;
  static_assert(fitting::value,
                "these are not the arguments of this collective: see the function of the same name in "
                "chorale/api/description.hpp, then a deadline and a completion token may follow");
  if constexpr (fitting::value)
    return describe(std::forward<std::tuple_element_t<I, All>>(std::get<I>(all))...);
  else
    return {};
}

}  // namespace detail

namespace detail {

// The descriptions as objects that can be passed on.
inline constexpr auto describe_all_reduce = [](auto&&... a)
  requires requires { chorale::all_reduce(std::forward<decltype(a)>(a)...); }
{ return chorale::all_reduce(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_reduce = [](auto&&... a)
  requires requires { chorale::reduce(std::forward<decltype(a)>(a)...); }
{ return chorale::reduce(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_broadcast = [](auto&&... a)
  requires requires { chorale::broadcast(std::forward<decltype(a)>(a)...); }
{ return chorale::broadcast(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_all_gather = [](auto&&... a)
  requires requires { chorale::all_gather(std::forward<decltype(a)>(a)...); }
{ return chorale::all_gather(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_all_gather_v = [](auto&&... a)
  requires requires { chorale::all_gather_v(std::forward<decltype(a)>(a)...); }
{ return chorale::all_gather_v(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_reduce_scatter = [](auto&&... a)
  requires requires { chorale::reduce_scatter(std::forward<decltype(a)>(a)...); }
{ return chorale::reduce_scatter(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_reduce_scatter_v = [](auto&&... a)
  requires requires { chorale::reduce_scatter_v(std::forward<decltype(a)>(a)...); }
{ return chorale::reduce_scatter_v(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_all_to_all = [](auto&&... a)
  requires requires { chorale::all_to_all(std::forward<decltype(a)>(a)...); }
{ return chorale::all_to_all(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_all_to_all_v = [](auto&&... a)
  requires requires { chorale::all_to_all_v(std::forward<decltype(a)>(a)...); }
{ return chorale::all_to_all_v(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_gather = [](auto&&... a)
  requires requires { chorale::gather(std::forward<decltype(a)>(a)...); }
{ return chorale::gather(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_gather_v = [](auto&&... a)
  requires requires { chorale::gather_v(std::forward<decltype(a)>(a)...); }
{ return chorale::gather_v(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_scatter = [](auto&&... a)
  requires requires { chorale::scatter(std::forward<decltype(a)>(a)...); }
{ return chorale::scatter(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_scatter_v = [](auto&&... a)
  requires requires { chorale::scatter_v(std::forward<decltype(a)>(a)...); }
{ return chorale::scatter_v(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_scan = [](auto&&... a)
  requires requires { chorale::scan(std::forward<decltype(a)>(a)...); }
{ return chorale::scan(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_exscan = [](auto&&... a)
  requires requires { chorale::exscan(std::forward<decltype(a)>(a)...); }
{ return chorale::exscan(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_send = [](auto&&... a)
  requires requires { chorale::send(std::forward<decltype(a)>(a)...); }
{ return chorale::send(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_recv = [](auto&&... a)
  requires requires { chorale::recv(std::forward<decltype(a)>(a)...); }
{ return chorale::recv(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_sendrecv = [](auto&&... a)
  requires requires { chorale::sendrecv(std::forward<decltype(a)>(a)...); }
{ return chorale::sendrecv(std::forward<decltype(a)>(a)...); };
inline constexpr auto describe_barrier = [](auto&&... a)
  requires requires { chorale::barrier(std::forward<decltype(a)>(a)...); }
{ return chorale::barrier(std::forward<decltype(a)>(a)...); };

}  // namespace detail

/// `Self` has `place(const described_call&, deadline)`; if it takes tokens, `call_with(described_call,
/// deadline, token)`; if it has GPUs, `launch(const described_call&, on, deadline)`.
template <class Self>
class collective_calls {
 public:
  template <buffer First, class... Rest>
  auto all_reduce(First&& first, Rest&&... rest) {
    return made(detail::describe_all_reduce, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto reduce(First&& first, Rest&&... rest) {
    return made(detail::describe_reduce, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto broadcast(First&& first, Rest&&... rest) {
    return made(detail::describe_broadcast, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto all_gather(First&& first, Rest&&... rest) {
    return made(detail::describe_all_gather, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto all_gather_v(First&& first, Rest&&... rest) {
    return made(detail::describe_all_gather_v, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto reduce_scatter(First&& first, Rest&&... rest) {
    return made(detail::describe_reduce_scatter, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto reduce_scatter_v(First&& first, Rest&&... rest) {
    return made(detail::describe_reduce_scatter_v, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto all_to_all(First&& first, Rest&&... rest) {
    return made(detail::describe_all_to_all, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto all_to_all_v(First&& first, Rest&&... rest) {
    return made(detail::describe_all_to_all_v, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto gather(First&& first, Rest&&... rest) {
    return made(detail::describe_gather, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto gather_v(First&& first, Rest&&... rest) {
    return made(detail::describe_gather_v, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto scatter(First&& first, Rest&&... rest) {
    return made(detail::describe_scatter, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto scatter_v(First&& first, Rest&&... rest) {
    return made(detail::describe_scatter_v, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto scan(First&& first, Rest&&... rest) {
    return made(detail::describe_scan, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto exscan(First&& first, Rest&&... rest) {
    return made(detail::describe_exscan, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto send(First&& first, Rest&&... rest) {
    return made(detail::describe_send, first, std::forward<Rest>(rest)...);
  }
  /// The await gives a `received`; so do calls that wait by themselves.
  template <buffer First, class... Rest>
  auto recv(First&& first, Rest&&... rest) {
    return made(detail::describe_recv, first, std::forward<Rest>(rest)...);
  }
  template <buffer First, class... Rest>
  auto sendrecv(First&& first, Rest&&... rest) {
    return made(detail::describe_sendrecv, first, std::forward<Rest>(rest)...);
  }
  template <class... Rest>
  auto barrier(Rest&&... rest) {
    return made(detail::describe_barrier, std::forward<Rest>(rest)...);
  }

 private:
  friend Self;
  collective_calls() = default;
  template <class Caller>
  static constexpr bool can_launch = requires(Caller& self, const described_call& what, on stream) {
    self.launch(what, stream, deadline{});
  };
  template <class Describe>
  static constexpr bool receives =
      std::is_same_v<std::remove_const_t<Describe>, std::remove_const_t<decltype(detail::describe_recv)>> ||
      std::is_same_v<std::remove_const_t<Describe>, std::remove_const_t<decltype(detail::describe_sendrecv)>>;

  template <class Describe, class... Args>
  auto made(const Describe& describe, Args&&... args) {
    using arguments = detail::call_arguments<Args...>;
    auto& self = static_cast<Self&>(*this);
    const std::tuple<Args&&...> all{std::forward<Args>(args)...};
    described_call described =
        detail::describe_with(describe, all, std::make_index_sequence<arguments::count_before_extras()>{});
    deadline limit;
    if constexpr (arguments::template has<deadline>)
      limit = std::get<arguments::template index_of<deadline>()>(all);
    if constexpr (arguments::template has<on>) {
      static_assert(!arguments::has_token,
                    "with a stream, await what the call returns: it takes no completion token");
      static_assert(can_launch<Self>,
                    "operations on device memory are called on the communicator; lanes have none");
      if constexpr (can_launch<Self>)
        return self.launch(described, std::get<arguments::template index_of<on>()>(all), limit);
    } else {
      static_assert(!arguments::has_device_memory,
                    "device memory needs a stream: put chorale::on(stream) behind the arguments");
      if constexpr (arguments::has_token) {
        limit = deadline{limit.from(steady_now())};  // counts from here, not from when the engine takes it
        using token = std::tuple_element_t<sizeof...(Args) - 1, std::tuple<Args...>>;
        return self.call_with(std::move(described), limit,
                              std::forward<token>(std::get<sizeof...(Args) - 1>(all)));
      } else if constexpr (!receives<Describe>) {
        return self.place(described, limit);
      } else if constexpr (std::is_void_v<decltype(self.place(described, limit))>) {
        received came;
        received* const also = std::exchange(described.what.told, &came);
        self.place(described, limit);
        if (also) *also = came;
        return came;
      } else {
        return receive_ticket{self.place(described, limit)};
      }
    }
  }
};

}  // namespace chorale
