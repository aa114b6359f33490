// A further thread for a watch thread that must wait for more words, or own more robust words, than the
// kernel allows one thread: 128 in a futex_waitv, some 2000 in a robust list.
//
// It only sleeps and rings: the watch thread hands it words and looks at the state behind them itself.
// `wait_for` and `list` are used under the guard's lock.
#pragma once

#include <chorale/transport/guard/doorbell.hpp>
#include <chorale/transport/guard/plain_thread.hpp>
#include <chorale/transport/guard/robust_words.hpp>
#include <chorale/transport/guard/system_calls.hpp>

#include <mutex>
#include <span>
#include <vector>

namespace chorale::guarding {

class extra_waiter {
 public:
  /// Starts the thread; throws `failure`. `bell` is rung when a word changes or is woken.
  explicit extra_waiter(doorbell& bell);
  ~extra_waiter();

  /// From now on wait for these. Cheap when they are the same as before and none has changed.
  void wait_for(std::span<const waited_word> words);
  [[nodiscard]] robust_list& list() noexcept { return list_; }
  /// In a fork child: the thread is not there.
  void forget() noexcept { thread_.forget(); }

 private:
  void run();

  doorbell& bell_;
  robust_list list_;
  std::mutex mutex_;
  std::vector<waited_word> words_;
  bool stopping_ = false;
  std::atomic<bool> rang_{false};
  futex_word round_{0};
  plain_thread thread_;
};

}  // namespace chorale::guarding
