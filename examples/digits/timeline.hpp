// Splits the wall time of one thread into computing and waiting for others, from timestamps taken in the run.
//
// What a rank would have needed with communication removed is the sum of its computing spans; everything else
// between the first and the last timestamp is communication that no computation hid. Where ranks share cores,
// much of that is waiting for a core while others compute, so the processor time spent in it is kept as well.
#pragma once

#include <chrono>
#include <ctime>

namespace digits {

class timeline {
 public:
  using clock = std::chrono::steady_clock;
  using seconds = std::chrono::duration<double>;

  void begin() {
    last_ = clock::now();
    last_on_core_ = on_core();
  }
  /// The time since the last timestamp was computation.
  void computed() { computing_ += lap(); }
  /// The time since the last timestamp was spent in the exchange.
  void exchanged() {
    const clock::duration before = last_on_core_;
    exposed_ += lap();
    exchanging_ += last_on_core_ - before;
  }

  [[nodiscard]] seconds computing() const { return computing_; }
  [[nodiscard]] seconds exposed() const { return exposed_; }
  /// The part of `exposed` in which this thread had a core and worked.
  [[nodiscard]] seconds exchanging() const { return exchanging_; }

 private:
  clock::duration lap() {
    const clock::time_point now = clock::now();
    const clock::duration span = now - last_;
    last_ = now;
    last_on_core_ = on_core();
    return span;
  }
  static clock::duration on_core() {
    std::timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return std::chrono::seconds{used.tv_sec} + std::chrono::nanoseconds{used.tv_nsec};
  }

  clock::time_point last_;
  clock::duration last_on_core_{};
  clock::duration computing_{};
  clock::duration exposed_{};
  clock::duration exchanging_{};
};

}  // namespace digits
