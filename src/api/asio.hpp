// Communicators in Asio programs: any completion token, on any executor.
//
//   #include <chorale/asio.hpp>
//   co_await comm.all_reduce(gradient, chorale::sum, asio::use_awaitable);
//   comm.barrier([](std::error_code why) { … });
//
// The communicator lives on an engine with a thread of its own (engine_thread); calls come from any thread.
// Signature: void(std::error_code). asio::error::operation_aborted after a cancellation, else a
// chorale::errc.
//
// Order: a call takes its place when it is made, not when a lazy token gets round to starting it; see
// foreign_call.hpp for calls from several threads. An operation made with a lazy token and never started ends
// its lane, as every dropped ticket does. Completion is posted to the handler's associated executor (the
// system executor if it has none), which is kept in work meanwhile. Cancellation: terminal only, since it
// ends the lane on every rank. A handler destroyed uninvoked, because its execution context goes, first has
// its operation stopped and waits until it is quiet: the engine must still run then, no peer need.
// Communicator and buffers stay where they are until completion.
#pragma once

// clang with libstdc++: Asio 1.22 looks for coroutines where they are not.
#if defined(__clang__) && defined(__cpp_impl_coroutine)
#if !defined(ASIO_HAS_CO_AWAIT)
#define ASIO_HAS_CO_AWAIT 1
#endif
#if !defined(ASIO_HAS_STD_COROUTINE)
#define ASIO_HAS_STD_COROUTINE 1
#endif
#endif

#include <chorale/api/communicator.hpp>
#include <chorale/api/foreign_call.hpp>

#include <asio/associated_allocator.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/error.hpp>
#include <asio/execution.hpp>
#include <asio/execution_context.hpp>
#include <asio/post.hpp>
#include <asio/prefer.hpp>
#include <asio/query.hpp>
#include <asio/system_executor.hpp>

#include <memory>
#include <mutex>
#include <system_error>
#include <type_traits>
#include <utility>

namespace chorale {
namespace detail {

/// Where this header finds Asio, and what handlers are given: all in which Boost.Asio differs, but for the
/// names of its headers.
namespace net = ::asio;
using handler_code = std::error_code;
using handler_signature = void(handler_code);

/// An operation whose handler waits in some execution context.
class waiting_handler : public foreign_call::listener {
 public:
  explicit waiting_handler(foreign_call_handle call) noexcept : call_{std::move(call)} {}
  waiting_handler(const waiting_handler&) = delete;
  waiting_handler& operator=(const waiting_handler&) = delete;

  [[nodiscard]] foreign_call& call() const noexcept { return *call_.operator->(); }
  /// The context goes: the handler is destroyed, not called. The operation is quiet.
  virtual void destroy() noexcept = 0;

 protected:
  ~waiting_handler() = default;
  foreign_call_handle call_;

 private:
  friend class handler_registry;
  waiting_handler* previous_ = nullptr;
  waiting_handler* next_ = nullptr;
};

/// Per execution context: the handlers that wait in it, so that none outlives it.
class handler_registry final : public net::execution_context::service {
 public:
  using key_type = handler_registry;
  static inline net::execution_context::id id;

  explicit handler_registry(net::execution_context& of) : net::execution_context::service{of} {}

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

[[nodiscard]] inline handler_code error_code_of(const error& outcome) noexcept {
  if (outcome == errc::ok) return {};
  if (outcome == errc::cancelled) return net::error::operation_aborted;
  return outcome.code();
}

/// What is posted in the end: the handler with its argument. The slot is emptied on the handler's own
/// executor, where others may be emitting to it.
template <class Handler>
struct delivery {
  using allocator_type = net::associated_allocator_t<Handler>;
  Handler handler;
  handler_code outcome;

  [[nodiscard]] allocator_type get_allocator() const noexcept {
    return net::get_associated_allocator(handler);
  }
  void operator()() {
    if (auto slot = net::get_associated_cancellation_slot(handler); slot.is_connected()) slot.clear();
    std::move(handler)(outcome);
  }
};

template <class Handler>
class asio_handler final : public waiting_handler {
 public:
  using executor = net::associated_executor_t<Handler>;
  using kept_executor = std::decay_t<decltype(net::prefer(std::declval<const executor&>(),
                                                          net::execution::outstanding_work.tracked))>;
  using allocator = typename std::allocator_traits<
      net::associated_allocator_t<Handler>>::template rebind_alloc<asio_handler>;

  static void begin(Handler handler, foreign_call_handle call) {
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
  asio_handler(Handler handler, foreign_call_handle call)
      : waiting_handler{std::move(call)},
        handler_{std::move(handler)},
        executor_{
            net::prefer(net::get_associated_executor(handler_), net::execution::outstanding_work.tracked)} {}
  ~asio_handler() = default;

  void start() {
    if constexpr (net::can_query<const executor&, net::execution::context_t>::value) {
      auto& context = net::query(net::get_associated_executor(handler_), net::execution::context);
      registry_ = &net::use_service<handler_registry>(static_cast<net::execution_context&>(context));
      if (!registry_->add(*this)) {
        call_->drop();
        return destroy();
      }
    }
    if (auto slot = net::get_associated_cancellation_slot(handler_); slot.is_connected())
      slot.assign([call = call_](net::cancellation_type kind) {
        if ((kind & net::cancellation_type::terminal) != net::cancellation_type::none) call->request_stop();
      });
    const foreign_call_handle call = call_;  // `this` may be gone before `begin` returns
    call->begin(*this);
  }

  void ended(const error& outcome) noexcept override {
    const handler_code code = error_code_of(outcome);
    const auto deliver = [&] {
      const allocator memory{net::get_associated_allocator(handler_)};
      delivery<Handler> last{std::move(handler_), code};
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

  Handler handler_;
  kept_executor executor_;
  handler_registry* registry_ = nullptr;
};

/// A call between being made and being started: the ticket on its way through a lazy token. Destroyed
/// unstarted, it drops the ticket.
class call_initiation {
 public:
  explicit call_initiation(foreign_call_handle call) noexcept : call_{std::move(call)} {}
  call_initiation(call_initiation&&) noexcept = default;
  call_initiation& operator=(call_initiation&& other) noexcept {
    std::swap(call_, other.call_);
    return *this;
  }
  ~call_initiation() {
    if (call_) call_->drop();
  }
  template <class Handler>
  void operator()(Handler&& handler) {
    asio_handler<std::decay_t<Handler>>::begin(std::forward<Handler>(handler), std::exchange(call_, {}));
  }

 private:
  foreign_call_handle call_;
};

}  // namespace detail

/// `maker()` returns the ticket, on the engine's thread; see foreign_call.hpp.
template <class Maker, class Token>
auto async_call(engine& loop, Maker maker, Token&& token) {
  return detail::net::async_initiate<Token, detail::handler_signature>(
      detail::call_initiation{make_foreign_call(loop, std::move(maker))}, token);
}

template <class Token>
  requires detail::net::completion_token_for<Token, detail::handler_signature>
struct token_traits<Token> {
  static constexpr bool supported = true;
  template <class Maker>
  static auto call(engine& loop, Maker maker, Token token) {
    return async_call(loop, std::move(maker), std::move(token));
  }
};

}  // namespace chorale
