#include <chorale/transport/guard/extra_waiter.hpp>

#include <algorithm>
#include <semaphore>

namespace chorale::guarding {

extra_waiter::extra_waiter(doorbell& bell) : bell_{bell} {
  std::binary_semaphore ready{0};
  thread_.start("chorale-watch+", [this, &ready] {
    static_cast<void>(list_.install());
    ready.release();
    run();
  });
  ready.acquire();
}

extra_waiter::~extra_waiter() {
  if (!thread_.running()) return;
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  round_.fetch_add(1);
  futex_wake(round_);
  thread_.join();
}

void extra_waiter::wait_for(std::span<const waited_word> words) {
  const std::lock_guard lock{mutex_};
  if (!rang_.load() && std::equal(words.begin(), words.end(), words_.begin(), words_.end())) return;
  words_.assign(words.begin(), words.end());
  rang_ = false;
  round_.fetch_add(1);
  futex_wake(round_);
}

void extra_waiter::run() {
  std::vector<waited_word> words;
  for (;;) {
    std::uint32_t round = 0;
    {
      const std::lock_guard lock{mutex_};
      if (stopping_) return;
      round = round_.load();
      words.assign(1, waited_word{round_, round});
      words.insert(words.end(), words_.begin(), words_.end());
    }
    futex_wait_any(words, std::nullopt);
    if (round_.load() != round) continue;
    // A word was woken or differs. The watch thread answers with a new round.
    rang_ = true;
    bell_.ring();
    while (round_.load() == round) futex_wait(round_, round);
  }
}

}  // namespace chorale::guarding
