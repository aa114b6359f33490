// Operations of chorale with Asio's completion tokens: the one text for standalone Asio and for Boost.Asio,
// which differ in what `net` names. Included by api/asio.hpp and api/boost_asio.hpp, which say so.
//
// A call's ticket travels through a lazy token in `call_initiation`. Once started, an `asio_handler` in the
// handler's own memory waits for the engine to tell the end, and posts a `delivery` to the handler's
// executor. `handler_registry` is there for contexts that go first.
#pragma once

#include <chorale/api/communicator.hpp>
#include <chorale/api/foreign_call.hpp>

#include <concepts>
#include <exception>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale {
namespace detail {

/// An operation whose handler waits in some execution context.
class waiting_handler : public foreign_call::listener {
 public:
  waiting_handler() = default;
  waiting_handler(const waiting_handler&) = delete;
  waiting_handler& operator=(const waiting_handler&) = delete;

  [[nodiscard]] virtual foreign_call& call() const noexcept = 0;
  /// The context goes: the handler is destroyed, not called. The operation is quiet.
  virtual void destroy() noexcept = 0;

 protected:
  ~waiting_handler() = default;

 private:
  template <class Context>
  friend class handler_registry;
  waiting_handler* previous_ = nullptr;
  waiting_handler* next_ = nullptr;
};

/// Per execution context: the handlers that wait in it, so that none outlives it.
template <class Context = net::execution_context>
class handler_registry final : public Context::service {
 public:
  using key_type = handler_registry;
  static inline typename Context::id id;

  explicit handler_registry(Context& of) : Context::service{of} {}

  /// False when the context is going already.
  [[nodiscard]] bool add(waiting_handler& h) noexcept {
    const std::lock_guard lock{mutex_};
    if (gone_) return false;
    h.previous_ = nullptr;
    h.next_ = first_;
    if (first_) first_->previous_ = &h;
    first_ = &h;
    return true;
  }
  /// Runs `deliver` unless the context is going; then nothing is done, and `shutdown` destroys the handler.
  template <class Deliver>
  void leave(waiting_handler& h, Deliver deliver) noexcept {
    const std::lock_guard lock{mutex_};
    if (gone_) return;
    (h.previous_ ? h.previous_->next_ : first_) = h.next_;
    if (h.next_) h.next_->previous_ = h.previous_;
    deliver();  // under the lock, so that the context stays until the handler is in it
  }

 private:
  void shutdown() noexcept override {
    {
      const std::lock_guard lock{mutex_};
      gone_ = true;
    }
    for (waiting_handler* h = first_; h; h = h->next_) h->call().request_stop();
    while (first_) {
      waiting_handler* h = std::exchange(first_, first_->next_);
      h->call().wait_until_quiet();
      h->destroy();
    }
  }

  std::mutex mutex_;
  bool gone_ = false;
  waiting_handler* first_ = nullptr;
};

// Where a handler is called: on its own executor, else on the system's.
template <class Handler>
using executor_of = net::associated_executor_t<Handler, net::system_executor>;
template <class Handler>
[[nodiscard]] executor_of<Handler> get_executor_of(const Handler& handler) noexcept {
  return net::get_associated_executor(handler, net::system_executor{});
}

/// What a handler of an operation is called with.
struct operation_completion {
  using call = foreign_call;
  using signature = void(net_error_code);
  static std::tuple<net_error_code> arguments(call&, const error& outcome) noexcept {
    if (outcome == errc::ok) return {};
    if (outcome == errc::cancelled) return net_error_code{net::error::operation_aborted};
    return net_error_code{make_error_code(outcome.code())};
  }
  /// For a copy of an operation that was started already.
  static std::tuple<net_error_code> refused() noexcept {
    return net_error_code{make_error_code(errc::invalid_state)};
  }
};

inline std::exception_ptr started_twice() {
  return std::make_exception_ptr(failure{error{errc::invalid_state, "a task was started twice"}});
}

/// What a handler of a task is called with: an exception and no value, or a value and no exception.
template <class T>
struct task_completion {
  static_assert(std::is_default_constructible_v<T>,
                "Asio passes a value beside every exception: let the task return std::optional of this type");
  using call = foreign_task<T>;
  using signature = void(std::exception_ptr, T);
  static std::tuple<std::exception_ptr, T> arguments(call& ended, const error& outcome) {
    std::exception_ptr failed = ended.failed(outcome);
    if (failed) return {std::move(failed), T{}};
    return {nullptr, *std::move(ended.value())};
  }
  static std::tuple<std::exception_ptr, T> refused() { return {started_twice(), T{}}; }
};
template <>
struct task_completion<void> {
  using call = foreign_task<void>;
  using signature = void(std::exception_ptr);
  static std::tuple<std::exception_ptr> arguments(call& ended, const error& outcome) {
    return ended.failed(outcome);
  }
  static std::tuple<std::exception_ptr> refused() { return started_twice(); }
};

/// What is posted in the end: the handler with its arguments. The slot is emptied on the handler's own
/// executor, where others may be emitting to it.
template <class Handler, class Arguments>
struct delivery {
  using allocator_type = net::associated_allocator_t<Handler>;
  Handler handler;
  Arguments arguments;

  [[nodiscard]] allocator_type get_allocator() const noexcept {
    return net::get_associated_allocator(handler);
  }
  void operator()() {
    if (auto slot = net::get_associated_cancellation_slot(handler); slot.is_connected()) slot.clear();
    std::apply(std::move(handler), std::move(arguments));
  }
};

template <class Handler, class Completion>
class asio_handler final : public waiting_handler {
 public:
  using call_handle = foreign_handle<typename Completion::call>;
  using executor = executor_of<Handler>;
  using kept_executor = std::decay_t<decltype(net::prefer(std::declval<const executor&>(),
                                                          net::execution::outstanding_work.tracked))>;
  using allocator = typename std::allocator_traits<
      net::associated_allocator_t<Handler>>::template rebind_alloc<asio_handler>;

  static void begin(Handler handler, call_handle call) {
    allocator memory{net::get_associated_allocator(handler)};
    asio_handler* self = std::allocator_traits<allocator>::allocate(memory, 1);
    try {
      ::new (self) asio_handler{std::move(handler), std::move(call)};
    } catch (...) {
      std::allocator_traits<allocator>::deallocate(memory, self, 1);
      throw;
    }
    self->start();
  }

 private:
  asio_handler(Handler handler, call_handle call)
      : call_{std::move(call)},
        handler_{std::move(handler)},
        executor_{net::prefer(get_executor_of(handler_), net::execution::outstanding_work.tracked)} {}
  ~asio_handler() = default;
  [[nodiscard]] foreign_call& call() const noexcept override { return *call_.operator->(); }

  void start() {
    if constexpr (net::can_query<const executor&, net::execution::context_t>::value) {
      auto& context = net::query(get_executor_of(handler_), net::execution::context);
      registry_ = &net::use_service<handler_registry<>>(static_cast<net::execution_context&>(context));
      if (!registry_->add(*this)) return destroy();
    }
    if (auto slot = net::get_associated_cancellation_slot(handler_); slot.is_connected())
      slot.assign([call = call_](net::cancellation_type) { call->request_stop(); });
    const call_handle call = call_;  // `this` may be gone before `begin` returns
    call->begin(*this);
  }

  void ended(const error& outcome) noexcept override {
    using arguments = decltype(Completion::arguments(*call_.operator->(), outcome));
    const auto deliver = [&] {
      const allocator memory{net::get_associated_allocator(handler_)};
      delivery<Handler, arguments> last{std::move(handler_),
                                        Completion::arguments(*call_.operator->(), outcome)};
      const kept_executor to = std::move(executor_);
      free(memory);  // before the handler runs, so that it may use the memory again
      net::post(to, std::move(last));
    };
    if (registry_)
      registry_->leave(*this, deliver);
    else
      deliver();
  }

  void destroy() noexcept override { free(allocator{net::get_associated_allocator(handler_)}); }
  void free(allocator memory) noexcept {
    this->~asio_handler();
    std::allocator_traits<allocator>::deallocate(memory, this, 1);
  }

  call_handle call_;
  Handler handler_;
  kept_executor executor_;
  handler_registry<>* registry_ = nullptr;
};

/// A call between being made and being started: the ticket on its way through a lazy token. The ticket is
/// dropped when the last copy goes unstarted (deferred operations of Boost 1.81 are copied).
template <class Completion>
class call_initiation {
 public:
  using call_handle = foreign_handle<typename Completion::call>;
  explicit call_initiation(call_handle call) noexcept : call_{std::move(call)} {}
  template <class Handler>
  void operator()(Handler&& handler) const {
    using kept = std::decay_t<Handler>;
    if (call_->first_to_begin()) {
      asio_handler<kept, Completion>::begin(std::forward<Handler>(handler), call_);
      return;
    }
    auto arguments = Completion::refused();
    const auto to = get_executor_of(handler);
    net::post(to, delivery<kept, decltype(arguments)>{std::forward<Handler>(handler), std::move(arguments)});
  }

 private:
  call_handle call_;
};

}  // namespace detail

/// `maker()` returns the ticket, on the engine's thread; see foreign_call.hpp.
template <class Maker, class Token>
auto async_call(engine& loop, Maker maker, Token&& token) {
  using completion = detail::operation_completion;
  return detail::net::async_initiate<Token, completion::signature>(
      detail::call_initiation<completion>{make_foreign_call(loop, std::move(maker))}, token);
}

/// Runs a task of chorale on an engine's thread and completes as `co_spawn` does: with the exception that it
/// threw, or with its value. A cancellation stops the task, which is then waited for. `maker()` returns the
/// task, on the engine's thread.
template <class Maker, class Token>
  requires std::invocable<Maker&>
auto spawn_in(engine& loop, Maker maker, Token&& token) {
  using completion = detail::task_completion<detail::made_by<Maker>>;
  return detail::net::async_initiate<Token, typename completion::signature>(
      detail::call_initiation<completion>{make_foreign_task(loop, std::move(maker))}, token);
}
template <class T, class Token>
auto spawn_in(engine& loop, task<T> work, Token&& token) {
  return spawn_in(
      loop, [work = std::move(work)]() mutable { return std::move(work); }, std::forward<Token>(token));
}

template <class Token>
  requires detail::net::completion_token_for<Token, detail::operation_completion::signature>
struct token_traits<Token> {
  static constexpr bool supported = true;
  template <class Maker>
  static auto call(engine& loop, Maker maker, Token token) {
    return async_call(loop, std::move(maker), std::move(token));
  }
  template <class Maker>
  static auto run(engine& loop, Maker maker, Token token) {
    return spawn_in(loop, std::move(maker), std::move(token));
  }
};

}  // namespace chorale
