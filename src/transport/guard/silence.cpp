#include <chorale/transport/guard/silence.hpp>

#include <algorithm>

namespace chorale::guarding {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

silence::silence(rank_t size, const guard_options& options)
    : timeout_{options.peer_timeout},
      question_after_{options.question_after},
      tick_{timeout_ == 0ns ? question_after_ : std::clamp(timeout_ / 16, nanoseconds{5ms}, nanoseconds{1s})},
      subjects_(static_cast<std::size_t>(size)) {}

silence::verdict silence::look(time_point now, std::span<const wait> waits) {
  verdict out;
  ++looks_;
  const nanoseconds listened = last_look_ ? std::min<nanoseconds>(now - *last_look_, 2 * tick_) : 0ns;
  last_look_ = now;
  auto later = [&out](time_point when) {
    if (!out.look_again || when < *out.look_again) out.look_again = when;
  };
  for (const wait& w : waits) {
    auto& s = subjects_[static_cast<std::size_t>(w.rank)];
    s.look = looks_;
    if (!s.asked) {
      if (s.heard && now - *s.heard < question_after_) {
        later(*s.heard + question_after_);
        continue;
      }
      s.asked = true;
      s.attempt = 0;
      s.silent_for = 0ns;
      s.ask_again_at = question_after_;
      out.ask.push_back({w, 0});
    } else {
      s.silent_for += listened;
      if (timeout_ != 0ns && s.silent_for >= timeout_) {
        s.asked = false;
        out.unresponsive.push_back(w);
        continue;
      }
      if (s.silent_for >= s.ask_again_at) {
        s.ask_again_at += question_after_;
        out.ask.push_back({w, ++s.attempt});
      }
    }
    later(now + tick_);
  }
  for (auto& s : subjects_)
    if (s.look != looks_) s.asked = false;  // nothing waits for it any more
  return out;
}

void silence::heard(rank_t rank, time_point now) noexcept {
  auto& s = subjects_[static_cast<std::size_t>(rank)];
  s.asked = false;
  s.silent_for = 0ns;
  s.heard = now;
}

}  // namespace chorale::guarding
