// A call on device memory and its launch, without any CUDA type: what public headers see.
#pragma once

#include <chorale/async/suspension.hpp>
#include <chorale/async/timer.hpp>
#include <chorale/collective/call.hpp>

#include <coroutine>
#include <cstdint>
#include <vector>

namespace chorale {

class core;
class gpu_side;

struct gpu_call {
  core* inside = nullptr;
  gpu_side* gpu = nullptr;
  call what;
  std::vector<call> batch;  ///< instead of `what`: sends and receives as one operation
  void* stream = nullptr;
  bool awaited = true;  ///< whether the kernel tells the host of its end
  error refused;
};

/// A launch to be awaited.
struct gpu_launch {
  core* inside = nullptr;
  gpu_side* gpu = nullptr;
  std::uint64_t sequence = 0;  ///< 0: captured, or refused
  const std::uint64_t* flag = nullptr;
  std::uint64_t device_flag = 0;
  time_point expires = never;
  error refused;
};

/// Enqueues the call on its stream: no wait, and no allocation unless it is a batch.
[[nodiscard]] gpu_launch launch(gpu_call what);

class [[nodiscard]] gpu_awaiter : public suspension {
 public:
  gpu_awaiter(gpu_launch launched) noexcept  // NOLINT(google-explicit-constructor)
      : suspension{on_stop}, launched_{std::move(launched)} {}
  gpu_awaiter(const gpu_awaiter&) = delete;
  gpu_awaiter& operator=(const gpu_awaiter&) = delete;
  [[nodiscard]] bool await_ready() const noexcept;
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> waiting) {
    return wait(waiting, environment_of(waiting));
  }
  void await_resume();

 private:
  struct link;
  /// What ends the wait at the call's own deadline.
  struct expiry : timer {
    explicit expiry(gpu_awaiter& a) noexcept : timer{fire}, self{a} {}
    static void fire(operation& op) noexcept;
    gpu_awaiter& self;
  };
  bool wait(std::coroutine_handle<> waiting, const environment* env);
  static void on_stop(suspension& base) noexcept;
  static constexpr std::size_t link_bytes = 64;
  gpu_launch launched_;
  expiry expiry_{*this};
  alignas(16) std::byte link_[link_bytes];  // gpu_side::waiting and a pointer back
};

}  // namespace chorale
