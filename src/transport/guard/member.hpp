// What stands behind a `membership`: one rank's words, edges and conclusions.
//
// Owned by its `membership`, known to the watcher from `enter` to `retire`. Methods marked (any) follow
// membership.hpp; all others want the guard's lock. Conclusions flow one way: a `note_…` marks the rank,
// floods what others cannot see for themselves and claims the cause; `settle` forwards a new cause, rings,
// and only then tells the sink.
#pragma once

#include <chorale/transport/guard/control_link.hpp>
#include <chorale/transport/guard/dying.hpp>
#include <chorale/transport/guard/frame.hpp>
#include <chorale/transport/guard/mailbox_edge.hpp>
#include <chorale/transport/guard/membership.hpp>
#include <chorale/transport/guard/pending_table.hpp>
#include <chorale/transport/guard/silence.hpp>
#include <chorale/transport/guard/sleep_plan.hpp>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace chorale::guarding {

class watcher;

/// Hops a question or answer may take before it is given up: more than any graph of 2^31 ranks needs.
inline constexpr std::uint8_t most_hops = 64;

class member {
 public:
  /// Throws `failure` for a setup that does not fit together or a machine that has nothing left.
  member(std::shared_ptr<watcher> owner, membership_setup setup, guard_sink& sink);
  member(const member&) = delete;
  member& operator=(const member&) = delete;
  /// Leaves, says goodbye and takes everything back. Takes the lock itself.
  ~member();

  // (any)
  result<void> revoke(chorale::revoke notice);
  [[nodiscard]] std::optional<chorale::revoke> cause() const noexcept;
  result<void> leave(std::uint64_t last_ticket);
  void started(std::uint64_t ticket) noexcept;
  [[nodiscard]] pending_id pending(std::uint64_t lane, std::uint64_t ticket,
                                   std::span<const rank_t> waits_for, clock::time_point since) noexcept;
  void done(pending_id id) noexcept { pending_.remove(id); }
  [[nodiscard]] call_state last_answer(rank_t rank) const noexcept;
  [[nodiscard]] member_state state_of(rank_t rank) const noexcept;
  [[nodiscard]] death_signal signal_for(rank_t rank) const noexcept;
  [[nodiscard]] bool gone(rank_t rank) const noexcept;
  [[nodiscard]] guard_counters counters() const noexcept;

  /// Makes this member visible: state line, robust words, announcer, links. Throws `failure`.
  void enter();
  /// Words and descriptors for the next sleep, with the values they have now.
  void add_to(sleep_plan& plan) const;
  /// Looks at everything that may have changed; says when to look again at the latest.
  [[nodiscard]] std::optional<clock::time_point> look(clock::time_point now, sleep_kind sleeping);
  /// A control link has bytes, room or an end.
  void attend(control_link& link);
  [[nodiscard]] control_link* find_link(std::uint64_t id) noexcept;
  /// Another membership of this process learnt that a process is lost.
  void note_process(std::uint64_t process, const chorale::revoke& why);
  /// Forwards what is new, rings, tells the sink.
  void settle();

 private:
  struct free_words {
    void operator()(void* words) const noexcept { std::free(words); }
  };
  struct mate {
    host_mate info;
    bool own_process;
    mailbox_edge mail;
    member_line* line;
    bell_line* bell;
    revoke_line* revoked;
    robust_node* word;  // the mate is the victim, this member the watcher
    bool to_ring = false;

    /// Certainly ended, its memory torn down; false where neither descriptor is there.
    [[nodiscard]] bool process_gone() const noexcept {
      return info.pidfd ? process_ended(info.pidfd.get()) : other_end_closed(info.eof_fd.get());
    }
  };
  struct view {  // of one rank
    std::atomic<member_state> state{member_state::absent};
    std::atomic<call_state> answer{call_state::unknown};
    std::atomic<death_signal> signal{death_signal::report};
    std::atomic<bool> link_ended{false};
    std::uint32_t last_sequence = 0;  // of its lane revokes
    mate* as_mate = nullptr;
    control_link* as_link = nullptr;
  };

  // member.cpp
  void check_setup() const;
  void make_mates();
  void make_links();
  result<void> leave_locked(std::uint64_t last_ticket);
  void withdraw() noexcept;
  void say_goodbye() noexcept;
  [[nodiscard]] view& of(rank_t rank) noexcept { return views_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const view& of(rank_t rank) const noexcept { return views_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool in_range(rank_t rank) const noexcept { return rank >= 0 && rank < setup_.size; }
  [[nodiscard]] bool inherited() const noexcept;
  /// Not yet known to have left or died.
  [[nodiscard]] static bool may_fail(member_state s) noexcept {
    return s == member_state::absent || s == member_state::alive || s == member_state::silent;
  }

  // member_news.cpp
  void look_at(mate& m, sleep_kind sleeping);
  [[nodiscard]] bool died(mate& m, sleep_kind sleeping) noexcept;
  void read_mail(mate& m);
  void note_left(rank_t who, std::uint64_t last_ticket, rank_t told_by);
  /// `origin` noticed it first; `told_by` brought the news and is not told again.
  void note_death(rank_t who, std::int32_t detail, rank_t origin, rank_t told_by);
  /// A revoke of everything, from here or elsewhere: marks the culprit and claims the cause.
  void accept(const chorale::revoke& notice, rank_t told_by);
  /// This process's other memberships with the culprit's process.
  void tell_others(const chorale::revoke& notice);
  void spread_lane(const frame& notice, rank_t told_by);
  void drain_outbox();
  [[nodiscard]] bool claim(const chorale::revoke& notice) noexcept;
  [[nodiscard]] chorale::revoke notice_of(errc cause, rank_t culprit) const noexcept;

  // member_frames.cpp
  /// False for a frame that no correct guard sends.
  [[nodiscard]] bool handle(const frame_bytes& bytes, rank_t from);
  void handle_revoke(const frame& f, rank_t from);
  void handle_question(const frame& f);
  void reply_to(const frame& question);
  void blame_protocol(rank_t culprit);
  void conclude(control_link& link);

  // member_silence.cpp
  [[nodiscard]] std::optional<clock::time_point> judge(clock::time_point now);
  [[nodiscard]] std::optional<clock::time_point> gather_waits(clock::time_point now);
  [[nodiscard]] bool can_be_asked(rank_t rank) const noexcept;
  void ask(const silence::question& q);
  void note_silence(const silence::wait& wait);

  // member_routes.cpp
  [[nodiscard]] frame blank(frame_kind kind) const noexcept;
  void flood_links(const frame& f, rank_t except);
  void flood_mates(const frame& f, rank_t except);
  void route(const frame& f);
  void post(mate& m, const frame_bytes& bytes, when_full policy);
  void send(control_link& link, const frame_bytes& bytes);
  void ring_mates() noexcept;

  std::shared_ptr<watcher> watcher_;
  membership_setup setup_;
  guard_sink& sink_;
  std::uint32_t born_in_;                            // fork generation
  std::unique_ptr<void, free_words> private_words_;  // where no segment is needed
  guard_segment segment_;
  member_line& line_;
  revoke_line& revoked_;
  std::vector<view> views_;
  announcer announcer_;  // before the links, which tell it when they close
  std::deque<mate> mates_;
  std::deque<control_link> links_;
  std::optional<announcement> announcement_;
  bool entered_ = false;
  bool left_ = false;
  bool spread_ = false;

  std::mutex outbox_mutex_;
  std::vector<chorale::revoke> outbox_;  // lane revokes of this rank, not yet forwarded
  std::uint32_t lane_sequence_ = 0;

  pending_table pending_;
  std::atomic<bool> listening_{false};  // the watch thread looks at pending_ from time to time
  clock::time_point last_pending_{};
  silence silence_;
  std::vector<silence::wait> waits_;
  std::uint32_t question_number_ = 0;

  std::atomic<std::uint64_t> foreign_frames_{0};
  std::atomic<std::uint64_t> unroutable_frames_{0};
  std::atomic<std::uint64_t> questions_sent_{0};
  std::atomic<std::uint64_t> answers_sent_{0};
};

}  // namespace chorale::guarding
