// Operations of Asio in tasks of chorale: the completion token `use_task`.
//
//   chorale::task<> answer(tcp::socket& visitor, std::span<char> text) {
//     std::size_t n = co_await visitor.async_read_some(asio::buffer(text), chorale::use_task);
//     co_await chorale::with_timeout(5s, asio::async_write(visitor, asio::buffer(text, n),
//     chorale::use_task));
//   }
//
// An operation with this token is a lazy task<T>: T is what the handler would get behind its error code or
// exception, a tuple if that is several things. A code that is set is thrown as system_error; as_tuple and
// redirect_error go around it as ever. The operation is initiated on the task's engine, and its handlers run
// there, intermediate ones too: an I/O object that tasks use belongs to their engine's thread, whichever
// threads run its io_context. A stop request, a deadline too, cancels the operation, waits for its end, and
// throws `failure` with the reason. An operation whose context is destroyed ends with errc::cancelled.
#pragma once

#include <chorale/api/engine_executor.ipp>
#include <chorale/async/suspension.hpp>
#include <chorale/async/task.hpp>

#include <exception>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale {

struct use_task_t {};
inline constexpr use_task_t use_task{};

namespace detail {

/// What an await makes of a handler's arguments.
template <class... Args>
struct handler_arguments {
  static void check(const std::tuple<Args...>&, errc) {}
  static std::tuple<Args...> rest(std::tuple<Args...>&& all) { return std::move(all); }
};
template <class Why, class... Args>
  requires std::same_as<Why, net_error_code> || std::same_as<Why, std::exception_ptr>
struct handler_arguments<Why, Args...> {
  static void check(const std::tuple<Why, Args...>& all, errc stopped) {
    const Why& why = std::get<0>(all);
    if (!why) return;
    if constexpr (std::same_as<Why, std::exception_ptr>) {
      std::rethrow_exception(why);
    } else {
      if (why == net::error::operation_aborted && stopped != errc::ok) throw failure{error{stopped}};
      throw net_system_error{why};
    }
  }
  static std::tuple<Args...> rest(std::tuple<Why, Args...>&& all) {
    return std::apply([](Why&, Args&... args) { return std::tuple<Args...>{std::move(args)...}; }, all);
  }
};

template <class Tuple>
struct value_of_rest {
  using type = Tuple;
};
template <>
struct value_of_rest<std::tuple<>> {
  using type = void;
};
template <class T>
struct value_of_rest<std::tuple<T>> {
  using type = T;
};

/// The await of an operation of Asio: in the task's frame until the handler was called or destroyed.
template <class... Args>
class asio_wait : public suspension {
 public:
  class handler {
   public:
    using executor_type = engine_executor;
    using cancellation_slot_type = net::cancellation_slot;
    explicit handler(asio_wait& waits) noexcept
        : waits_{&waits}, executor_{waits.loop()}, slot_{waits.signal_.slot()} {}
    handler(handler&& other) noexcept
        : waits_{std::exchange(other.waits_, nullptr)}, executor_{other.executor_}, slot_{other.slot_} {}
    handler& operator=(handler&&) = delete;
    ~handler() {
      if (waits_) waits_->ended();  // nobody will call it
    }
    [[nodiscard]] executor_type get_executor() const noexcept { return executor_; }
    [[nodiscard]] cancellation_slot_type get_cancellation_slot() const noexcept { return slot_; }
    void operator()(Args... args) {
      asio_wait& waits = *std::exchange(waits_, nullptr);
      waits.arguments_.emplace(std::move(args)...);
      waits.ended();
    }

   private:
    asio_wait* waits_;
    executor_type executor_;
    cancellation_slot_type slot_;
  };

  asio_wait() noexcept : suspension{on_stop}, arrival_{*this} {}

  /// `start(handler)` initiates the operation. False when a stop was requested already.
  template <class Promise, class Start>
  bool begin(std::coroutine_handle<Promise> waiting, Start& start) noexcept {
    if (!suspend(waiting, environment_of(waiting))) return false;
    try {
      start(handler{*this});
    } catch (...) {
      thrown_ = std::current_exception();  // told when the handler is gone
    }
    return true;
  }
  auto take() {
    using kind = handler_arguments<Args...>;
    if (thrown_) std::rethrow_exception(std::move(thrown_));
    if (!arguments_) {
      const errc stopped = stop_reason();
      if (stopped != errc::ok) throw failure{error{stopped}};
      throw failure{error{errc::cancelled, "an Asio operation was given up: its context was destroyed"}};
    }
    kind::check(*arguments_, stop_reason());
    return kind::rest(*std::move(arguments_));
  }

 private:
  struct arrival : operation {
    explicit arrival(asio_wait& w) noexcept : operation{arrived}, self{w} {}
    static void arrived(operation& op) noexcept { static_cast<arrival&>(op).self.finish(); }
    asio_wait& self;
  };
  void ended() noexcept {
    if (loop().in_loop())
      finish();
    else
      static_cast<void>(post_to_engine(loop(), arrival_));
  }
  static void on_stop(suspension& base) noexcept {
    static_cast<asio_wait&>(base).signal_.emit(net::cancellation_type::all);
  }

  arrival arrival_;
  net::cancellation_signal signal_;
  std::optional<std::tuple<Args...>> arguments_;
  std::exception_ptr thrown_;
};

template <class Start, class... Args>
struct asio_awaiter {
  Start& start;
  asio_wait<Args...> wait;
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> waiting) noexcept {
    return wait.begin(waiting, start);
  }
  auto await_resume() { return wait.take(); }
};

template <class... Args>
using use_task_value = typename value_of_rest<decltype(handler_arguments<Args...>::rest(
    std::declval<std::tuple<Args...>>()))>::type;

}  // namespace detail
}  // namespace chorale

template <class R, class... Args>
class chorale::detail::net::async_result<chorale::use_task_t, R(Args...)> {
 public:
  using value_type = chorale::detail::use_task_value<std::decay_t<Args>...>;
  using return_type = chorale::task<value_type>;

  template <class Initiation, class... InitArgs>
  static return_type initiate(Initiation initiation, chorale::use_task_t, InitArgs... args) {
    auto start = [&](auto&& handler) {
      std::move(initiation)(std::forward<decltype(handler)>(handler), std::move(args)...);
    };
    chorale::detail::asio_awaiter<decltype(start), std::decay_t<Args>...> operation{start, {}};
    auto rest = co_await operation;
    if constexpr (std::tuple_size_v<decltype(rest)> == 1)
      co_return std::get<0>(std::move(rest));
    else if constexpr (std::tuple_size_v<decltype(rest)> > 1)
      co_return rest;
  }
};
