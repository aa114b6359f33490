// What the watch thread waits for in its next sleep: words, descriptors and a deadline.
//
// Each word is noted with the value it had *before* the round that looks at the state behind it, so that a
// change between the look and the sleep ends the sleep at once. Descriptors are for the sleep that must poll.
#pragma once

#include <chorale/transport/guard/doorbell.hpp>
#include <chorale/transport/guard/system_calls.hpp>

#include <poll.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace chorale::guarding {

struct sleep_plan {
  sleep_kind kind = sleep_kind::futex;
  std::vector<waited_word> words;
  std::vector<pollfd> descriptors;
  std::optional<clock::time_point> deadline;

  void clear(sleep_kind at_least) {
    kind = at_least;
    words.clear();
    descriptors.clear();
    deadline.reset();
  }
  void wait_for(const futex_word& word, std::uint32_t seen) { words.emplace_back(word, seen); }
  void wait_for_descriptor(int fd, short events) {
    if (fd >= 0) descriptors.push_back({fd, events, 0});
  }
  void no_later_than(std::optional<clock::time_point> when) {
    if (when) deadline = deadline ? std::min(*deadline, *when) : *when;
  }
  /// True when a word no longer has its noted value.
  [[nodiscard]] bool outdated() const noexcept {
    return std::any_of(words.begin(), words.end(), [](const waited_word& w) {
      return reinterpret_cast<const futex_word*>(w.address)->load() != static_cast<std::uint32_t>(w.expected);
    });
  }
};

}  // namespace chorale::guarding
