// Splits the wall time of one thread into computing and waiting for others, from timestamps taken in the run.
//
// What a rank would have needed with communication removed is the sum of its computing spans; everything else
// between the first and the last timestamp is communication that no computation hid.
#pragma once

#include <chrono>

namespace digits {

class timeline {
 public:
  using clock = std::chrono::steady_clock;
  using seconds = std::chrono::duration<double>;

  void begin() { last_ = clock::now(); }
  /// The time since the last timestamp was computation.
  void computed() { computing_ += lap(); }
  /// The time since the last timestamp was spent in the exchange.
  void exchanged() { exposed_ += lap(); }

  [[nodiscard]] seconds computing() const { return computing_; }
  [[nodiscard]] seconds exposed() const { return exposed_; }

 private:
  clock::duration lap() {
    const clock::time_point now = clock::now();
    const clock::duration span = now - last_;
    last_ = now;
    return span;
  }

  clock::time_point last_;
  clock::duration computing_{};
  clock::duration exposed_{};
};

}  // namespace digits
