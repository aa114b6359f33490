// An executor in Asio's sense whose functions run on an engine's thread, one after the other: a strand that
// is the engine.
//
//   asio::async_read(socket, buffer, asio::bind_executor(chorale::engine_executor{loop}, handler));
//
// A value, used on any thread; the engine outlives what was handed to it and runs until that has run.
// `execute` never runs the function inside the call. A function that throws ends the program.
#pragma once

#include <chorale/api/foreign_call.hpp>
#include <chorale/async/engine.hpp>

#include <utility>

namespace chorale {

class engine_executor {
 public:
  explicit engine_executor(engine& loop) noexcept : loop_{&loop} {}
  [[nodiscard]] engine& loop() const noexcept { return *loop_; }

  template <class Function>
  void execute(Function function) const {
    auto* queued = new errand<Function>{std::move(function)};
    if (loop_->in_loop())
      loop_->schedule(*queued);
    else
      static_cast<void>(detail::post_to_engine(*loop_, *queued));
  }

  /// Asio's `post` asks for what holds anyway.
  [[nodiscard]] engine_executor require(detail::net::execution::blocking_t::never_t) const noexcept {
    return *this;
  }
  friend bool operator==(const engine_executor&, const engine_executor&) noexcept = default;

 private:
  template <class Function>
  struct errand : operation {
    explicit errand(Function what) noexcept : operation{run_once}, function{std::move(what)} {}
    static void run_once(operation& op) noexcept {
      auto* self = &static_cast<errand&>(op);
      Function now = std::move(self->function);
      delete self;  // before it runs, so that it may use the memory again
      std::move(now)();
    }
    Function function;
  };
  engine* loop_;
};

}  // namespace chorale
