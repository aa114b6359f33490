// One rank's side of a window: its own part, its way to the others' parts, and what is under way between
// them.
//
// Where ranks share memory an operation is done by the caller, at once: put and get copy, accumulate combines
// element by element atomically, signal adds and rings the doorbell of an owner who sleeps. Elsewhere it
// travels in frames (window_frame.hpp), one operation at a time to each target, and the owner's engine does
// it; it has ended when the owner has said so. A wait looks at its counter whenever the engine turns.
//
// Made when all ranks agreed on the window; the lane it is given is its own, and what ends one ends the
// other. Handles share it; the window object calls `close` or `drop`, after which it belongs to nobody's
// core, every operation has ended and the memory stays until the last handle goes. Engine's thread only.
// Allocates only when more operations are in flight than ever before.
#pragma once

#include <chorale/collective/core.hpp>
#include <chorale/collective/window_operation.hpp>
#include <chorale/collective/window_part.hpp>
#include <chorale/kernels/host_reduce.hpp>
#include <chorale/transport/bootstrap/segment.hpp>
#include <chorale/transport/window_frame.hpp>

#include <array>
#include <memory>
#include <vector>

namespace chorale {

class window_side {
 public:
  /// `parts` by member; this rank's own can be reached. `memory` is what they lie in, where it is shared. The
  /// lane is handed over with one handle.
  window_side(core& inside, lane_state& lane, std::vector<window_part> parts, std::vector<segment> memory);
  window_side(const window_side&) = delete;
  window_side& operator=(const window_side&) = delete;
  ~window_side();

  [[nodiscard]] rank_t rank() const noexcept { return rank_; }
  [[nodiscard]] rank_t size() const noexcept { return static_cast<rank_t>(parts_.size()); }
  [[nodiscard]] const window_part& part(rank_t member) const noexcept {
    return parts_[static_cast<std::size_t>(member)];
  }
  /// Null once it was closed or dropped.
  [[nodiscard]] core* inside() const noexcept { return core_; }
  [[nodiscard]] lane_state& lane() const noexcept { return *lane_; }

  struct begun {
    window_operation* op = nullptr;  ///< null: done, or refused
    error refused;
    std::uint64_t value = 0;  ///< of a wait that was over at once
  };
  [[nodiscard]] begun begin(const window_request& what);

  /// No more operations from here: waits end with errc::cancelled. What is under way goes on.
  void begin_closing() noexcept;
  /// Operations of this rank that have not ended.
  [[nodiscard]] bool idle() const noexcept { return in_flight_ == 0; }
  /// Told once when `idle` becomes true; null takes it back.
  void when_idle(completion_observer* tell) noexcept { on_idle_ = tell; }
  /// All ranks have closed: leaves the core.
  void close() noexcept;
  /// This rank will not take part any more without having closed: so it ends on every rank.
  void drop(errc why = errc::dropped) noexcept;

  // From the core.
  void frame(rank_t from, const frame_header& header, const std::byte* payload) noexcept;
  /// Its lane ended; `why` in the numbers of the window's ranks.
  void lane_ended(const error& why) noexcept;
  void end(error why) noexcept;
  /// That member left in good order before the window was closed.
  void member_left(rank_t member) noexcept;
  /// Ends waits whose counters got there; returns how many.
  std::size_t poll() noexcept;
  [[nodiscard]] bool has_news() const noexcept;
  /// Tells the guard of whatever waits since the last time.
  void report(time_point now) noexcept;

 private:
  friend class window_operation;
  struct link;
  struct link_frame : outgoing {
    link* home = nullptr;
  };
  struct asked {
    std::uint64_t number = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t given = 0;
  };
  /// Frames to and from one rank: one of the two can not reach the other's part.
  struct link {
    link(window_side& owner, rank_t whom) noexcept;
    window_side& side;
    rank_t member;
    // What this rank does there.
    window_operations queued;  // the first is being handed over
    window_operations sent;    // until `applied`
    window_operations getting;
    std::uint64_t numbered = 0;
    std::uint32_t gets = 0;  // asked of the peer and not wholly got, abandoned ones included
    link_frame out;
    // What the peer does here.
    std::uint64_t begun = 0;    // the latest number that came
    std::uint64_t applied = 0;  // the latest that came wholly
    std::uint64_t told = 0;     // of it, said to the peer
    link_frame reply;
    std::array<asked, most_gets> asks;
    std::uint32_t first_ask = 0;
    std::uint32_t ask_count = 0;
    link_frame got;
  };

  [[nodiscard]] error check(const window_request& what, host_reduction& combine) const;
  [[nodiscard]] error check_range(const window_request& what) const;
  [[nodiscard]] error check_slot(const window_request& what, rank_t whose) const;
  [[nodiscard]] error unusable() const;
  void do_now(const window_request& what, host_reduction combine) noexcept;
  window_operation& new_operation(const window_request& what);
  void finish(window_operation& op, error outcome) noexcept;
  void stop(window_operation& op, errc why) noexcept;
  void recycle(window_operation& op) noexcept { free_.push_back(&op); }
  void finish_all(window_operations& list, const error& why) noexcept;
  void finish_link(link& l, const error& why) noexcept;
  void report(window_operations& list, rank_t waits_for, time_point now) noexcept;
  template <class Visit>
  void for_links(Visit visit);

  [[nodiscard]] pair& link_to(rank_t member) const noexcept;
  void violated(const link& l, const char* how) noexcept;
  // window_origin.cpp
  [[nodiscard]] static bool is_being_got(const link& l, const window_request& what) noexcept;
  void send_next(link& l) noexcept;
  void handed_over(link& l) noexcept;
  void on_applied(link& l, const window_words& w) noexcept;
  void on_got(link& l, const window_words& w, const std::byte* payload, std::uint64_t bytes) noexcept;
  // window_target.cpp
  [[nodiscard]] const char* apply(link& l, const window_words& w, const std::byte* payload,
                                  std::uint64_t bytes) noexcept;
  void tell_applied(link& l) noexcept;
  void serve(link& l) noexcept;
  [[nodiscard]] bool inside_own_part(std::uint64_t offset, std::uint64_t bytes) const noexcept;

  core* core_;
  lane_state* lane_;
  group& among_;
  rank_t rank_;
  std::vector<window_part> parts_;
  std::vector<segment> memory_;
  std::vector<std::unique_ptr<link>> links_;  // by member; where frames go or come
  window_operations waits_;
  std::size_t in_flight_ = 0;
  completion_observer* on_idle_ = nullptr;
  error ended_;
  bool closing_ = false;
  std::vector<bool> left_;
  rank_t who_left_ = no_rank;
  std::vector<std::unique_ptr<window_operation>> operations_;
  std::vector<window_operation*> free_;
};

}  // namespace chorale
