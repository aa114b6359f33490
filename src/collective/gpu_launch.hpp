// A call on device memory and its launch, without any CUDA type: what public headers see.
#pragma once

#include <chorale/async/suspension.hpp>
#include <chorale/kernels/dtype.hpp>

#include <coroutine>
#include <cstdint>

namespace chorale {

class core;
class gpu_side;

struct gpu_call {
  core* inside = nullptr;
  gpu_side* gpu = nullptr;
  const float* in = nullptr;
  float* out = nullptr;
  std::uint64_t count = 0;
  reduction op = reduction::sum;
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
  error refused;
};

/// Enqueues the call on its stream: no allocation, no wait.
[[nodiscard]] gpu_launch launch(gpu_call what);

class [[nodiscard]] gpu_awaiter : public suspension {
 public:
  gpu_awaiter(gpu_launch launched) noexcept  // NOLINT(google-explicit-constructor)
      : suspension{on_stop}, launched_{std::move(launched)} {}
  [[nodiscard]] bool await_ready() const noexcept;
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> waiting) {
    return wait(waiting, environment_of(waiting));
  }
  void await_resume();

 private:
  struct link;
  bool wait(std::coroutine_handle<> waiting, const environment* env);
  static void on_stop(suspension& base) noexcept;
  static constexpr std::size_t link_bytes = 64;
  gpu_launch launched_;
  alignas(16) std::byte link_[link_bytes];  // gpu_side::waiting and a pointer back
};

}  // namespace chorale
