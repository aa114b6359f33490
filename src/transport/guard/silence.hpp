// Judges who is silent: whom to ask, when to ask again, and when to give up. Pure: time and answers are
// handed in.
//
// A rank is asked while an operation waits for it, `question_after` after it was last heard. Its silence is
// counted in looks of this judge, each for at most two ticks, and not by the clock: a judge that was
// itself stopped or starved has not listened, and must not blame others for what it missed.
// Belongs to the watch thread.
#pragma once

#include <chorale/async/error.hpp>
#include <chorale/transport/guard/guard_options.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace chorale::guarding {

class silence {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// An operation that waits for `rank`.
  struct wait {
    rank_t rank = no_rank;
    std::uint64_t lane = 0;
    std::uint64_t ticket = 0;
  };
  struct question {
    wait about;
    unsigned attempt = 0;  ///< counts the repetitions, for other ways through the graph
  };
  struct verdict {
    std::vector<question> ask;
    std::vector<wait> unresponsive;
    std::optional<time_point> look_again;
  };

  silence(rank_t size, const guard_options& options);

  /// `waits` names each rank at most once.
  [[nodiscard]] verdict look(time_point now, std::span<const wait> waits);
  void heard(rank_t rank, time_point now) noexcept;

 private:
  struct subject {
    bool asked = false;
    unsigned attempt = 0;
    std::uint64_t look = 0;  // the last one in which it was waited for
    std::chrono::nanoseconds silent_for{0};
    std::chrono::nanoseconds ask_again_at{0};
    std::optional<time_point> heard;
  };

  std::chrono::nanoseconds timeout_;
  std::chrono::nanoseconds question_after_;
  std::chrono::nanoseconds tick_;
  std::uint64_t looks_ = 0;
  std::optional<time_point> last_look_;
  std::vector<subject> subjects_;
};

}  // namespace chorale::guarding
