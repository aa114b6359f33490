// A thread that application signals never reach, and that a fork child can forget.
//
// All signals are blocked in it except those a fault of its own raises. `join` before destruction; in a fork
// child, where the thread does not exist, `forget` instead.
#pragma once

#include <pthread.h>

#include <functional>

namespace chorale::guarding {

class plain_thread {
 public:
  plain_thread() = default;
  plain_thread(const plain_thread&) = delete;
  plain_thread& operator=(const plain_thread&) = delete;
  ~plain_thread();

  /// Throws `failure` when the system has no thread left. `name` has at most 15 characters.
  void start(const char* name, std::function<void()> body);
  [[nodiscard]] bool running() const noexcept { return running_; }
  void join() noexcept;
  void forget() noexcept { running_ = false; }

 private:
  pthread_t thread_{};
  bool running_ = false;
};

}  // namespace chorale::guarding
