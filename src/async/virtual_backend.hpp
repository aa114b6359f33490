// A backend without a kernel: time is a number that jumps to the next deadline instead of passing.
//
// For simulation and tests: everything that happens on its engine happens in the same order every time, and a
// second costs nothing. Requests to the kernel complete with -ENOTSUP. An engine that would sleep for ever
// gets errc::deadlock from `engine::run`, because nothing inside the simulation could end that sleep.
#pragma once

#include <chorale/async/backend.hpp>

#include <atomic>

namespace chorale {

class virtual_backend final : public backend {
 public:
  /// Time starts here. Not at zero, so that "an hour ago" can be written.
  static constexpr time_point start{std::chrono::hours{24}};

  void submit(io_operation& op) noexcept override;
  void cancel(io_operation&) noexcept override {}
  /// Any thread; a wake from another thread is outside what is deterministic.
  void wake() noexcept override { woken_.store(true, std::memory_order_release); }
  std::size_t reap(operation_queue& completed) noexcept override;
  /// Jumps to `until` unless something is to be handed over.
  std::size_t wait(time_point until, operation_queue& completed) noexcept override;
  [[nodiscard]] std::size_t outstanding() const noexcept override { return refused_.size(); }
  [[nodiscard]] time_point now() const noexcept override { return now_; }
  [[nodiscard]] int doorbell() const noexcept override { return -1; }
  [[nodiscard]] bool stuck() const noexcept override { return stuck_; }
  [[nodiscard]] const char* name() const noexcept override { return "virtual"; }

  /// Lets time pass while a coroutine computes.
  void advance(duration by) noexcept { now_ += by; }

 private:
  operation_queue refused_;
  time_point now_ = start;
  bool stuck_ = false;
  std::atomic<bool> woken_{false};
};

}  // namespace chorale
