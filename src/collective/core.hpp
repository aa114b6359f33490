// One communicator epoch from the inside: lanes, tickets, judgement of arrivals, failure, and the pools of
// operations. Executions (plan_execution, message_execution, tiny_exchange) move the data.
//
// Belongs to its engine's thread; the guard's threads enter only through the `guard_sink` methods, which
// write one cause and ring the engine's doorbell. A poller of its engine: it sleeps when nothing is in
// flight.
#pragma once

#include <chorale/async/engine.hpp>
#include <chorale/collective/group.hpp>
#include <chorale/collective/lane.hpp>
#include <chorale/collective/selection.hpp>
#include <chorale/transport/guard/guard.hpp>
#include <chorale/transport/pair.hpp>

#include <atomic>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace chorale {

class combining;
class gpu_abort;
class plan_execution;
struct prepared_call;
class loopback;
class message_execution;
class tiny_exchange;
class shm_wire;
class window_side;

struct core_setup {
  engine* loop = nullptr;
  rank_t rank = 0;
  rank_t size = 1;
  std::uint64_t epoch = 0;
  std::uint64_t max_lanes = 4096;
  selection_settings selection;
  /// By rank; null for this one. Wires are connected and idle.
  std::vector<std::unique_ptr<wire>> wires;
  /// By rank; the wires that are shm, for the one-line path.
  std::vector<shm_wire*> lines;
  /// By rank, the host, by any numbers that all ranks agree on; empty: one host.
  std::vector<std::uint32_t> hosts;
};

class core final : public poller, private arrival_judge, public guard_sink {
 public:
  explicit core(core_setup setup);
  core(const core&) = delete;
  core& operator=(const core&) = delete;
  /// Nothing may be in flight.
  ~core();

  [[nodiscard]] rank_t rank() const noexcept { return rank_; }
  [[nodiscard]] rank_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] engine& loop() noexcept { return loop_; }
  /// To this rank too: messages to oneself go through a ring like all others, made with the first ticket.
  [[nodiscard]] pair& link_to(rank_t peer) noexcept { return *links_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  /// All ranks of the epoch.
  [[nodiscard]] group& everybody() noexcept { return everybody_; }
  /// Every other rank has one-line messages.
  [[nodiscard]] bool all_lines() const noexcept { return all_lines_; }
  [[nodiscard]] shm_wire& line_to(rank_t peer) noexcept { return *lines_[static_cast<std::size_t>(peer)]; }
  /// It has one-line messages, and so a doorbell and memory in common with this rank.
  [[nodiscard]] bool shares_memory_with(rank_t peer) const noexcept {
    return lines_[static_cast<std::size_t>(peer)] != nullptr;
  }

  /// The lane of a key, made if need be. errc::too_many_lanes, errc::invalid_state for a key that ended.
  result<lane_state*> open_lane(std::uint64_t key) { return open_lane(everybody_, key); }
  result<lane_state*> open_lane(group& among, std::uint64_t key);
  /// One more handle on a lane that has one.
  lane_state* open_lane(lane_state& again) noexcept {
    ++again.handles;
    return &again;
  }
  /// What follows a lane that ended, or is ended now, on every rank that does the same. Takes the place of
  /// the caller's handle. errc::invalid_state when another handle has done it.
  result<lane_state*> renew_lane(lane_state& lane);
  /// The last handle on a lane that does nothing ends its key for this epoch.
  void close_handle(lane_state& lane) noexcept;

  /// How a call will be run; what it names need not exist yet. For calls that are made again and again.
  [[nodiscard]] result<prepared_call> prepare(group& among, const call& what);
  /// A child of the epoch: a communicator of `members`, this rank among them, in the order of their new
  /// numbers.
  group& add_group(std::uint64_t id, std::vector<rank_t> members, const group& parent);
  /// Its communicator is destroyed here: what runs ends with errc::cancelled, members that call on end with
  /// errc::peer_left.
  void leave_group(group& child) noexcept;
  /// As `leave_group` for a child that could not be made: who has it shall not wait for this rank.
  void refuse_group(std::uint64_t id, const group& parent) noexcept;
  /// Ends what runs, here only: the epoch's own communicator is gone and its children are not.
  void orphan() noexcept;
  /// What a rank of the epoch is called among the ranks of a communicator, in texts and errors.
  [[nodiscard]] static error as_seen_by(const group& among, error why);

  /// Takes the next ticket of `lane` for a call. Must be followed by `start` or `drop`, or the lane is
  /// revoked.
  [[nodiscard]] static std::uint64_t next_ticket(const lane_state& lane) noexcept { return lane.next_ticket; }
  [[nodiscard]] std::uint64_t take_ticket(lane_state& lane, call& what);
  /// Why a call can not have a ticket now; errc::ok if it can.
  [[nodiscard]] error refusal(const lane_state& lane, const call& what) const;
  /// Starts the call. The operation may have finished on return. Never null.
  in_flight* start(lane_state& lane, std::uint64_t ticket, call what);
  /// A ticket is destroyed unstarted: peers must not wait for it.
  void drop(lane_state& lane, std::uint64_t ticket, const call& what) noexcept;
  /// Ends an operation before its time: with its lane, or, for a receive from anybody that has met no
  /// message, alone, since no rank can know that it waits for that one.
  void end_early(in_flight& op, errc cause) noexcept;
  /// Ends a lane here and on every rank: the deadline passed, a stop was requested.
  void revoke_lane(lane_state& lane, std::uint64_t ticket, errc cause) noexcept;
  /// The calls of `a` differ: ends the lane everywhere with both signatures in the text.
  void mismatch(lane_state& lane, std::uint64_t ticket, const signature& ours, rank_t other,
                const signature& theirs) noexcept;

  /// The operation ended; called by its execution or by failure handling. Buffers are free when it returns.
  void finish(in_flight& op, error outcome) noexcept;

  /// Ends the whole epoch on this rank. The first cause stays. Safe to call again.
  void revoke_all(error why) noexcept;
  [[nodiscard]] const error& cause() const noexcept { return cause_; }
  /// Takes up what the guard found out since the last turn of the loop. Engine's thread.
  void look_at_the_guard() noexcept { act_on_cause(); }
  /// A cause from a guard thread waits to be acted on: cheap, for loops that spin.
  [[nodiscard]] bool cause_pending() const noexcept {
    return cause_phase_.load(std::memory_order_relaxed) == 2;
  }

  /// A window's part here is there: its frames, waits and ends pass through the core until it is removed.
  void add_window(window_side& window);
  void remove_window(window_side& window) noexcept;
  /// One more, or one less, operation on a window waits.
  void window_waits(bool more) noexcept { more ? ++window_operations_ : --window_operations_; }
  /// What a peer did to a window that no correct peer does: ends the epoch.
  void window_violated(rank_t from, const char* how) noexcept { link_violated(from, how); }
  [[nodiscard]] membership* guarded() noexcept { return guarded_ ? &*guarded_ : nullptr; }
  /// That rank takes part in nothing of `among` any more: it left in good order.
  [[nodiscard]] bool has_left(rank_t who, const group& among) const noexcept { return departed(who, among); }

  /// Gives the epoch its guard; from then on failures spread and deaths are learnt.
  void guard_with(std::unique_ptr<membership> guarded) noexcept;
  /// Gives the guard up: nothing is learnt or spread any more, and no guard thread enters.
  void unguard() noexcept { guarded_.reset(); }
  /// Failures end the GPU's kernels too; null: no longer. Must outlive the guard's membership or be taken
  /// back.
  void abort_with(gpu_abort* gpu) noexcept { gpu_.store(gpu, std::memory_order_release); }
  /// Ends the GPU's operations here and on every rank, nothing else.
  void revoke_gpu(errc cause) noexcept;

  /// Ends what is still in flight and announces `left`. Nothing may be called afterwards.
  void leave() noexcept;
  /// Ends the epoch on every rank, if nothing has ended it yet (with `why`, or with what this rank knows),
  /// and lets go of the wires: from here on this rank writes nowhere. Calls get errc::revoked. Handles and
  /// operations that ended may still be held.
  void close(error why) noexcept;
  /// After `close`: no handle, ticket or operation refers to this any more.
  [[nodiscard]] bool unused() const noexcept;
  /// That rank has left in good order or its process has certainly ended: it writes nothing of this epoch any
  /// more.
  [[nodiscard]] bool gone(rank_t who) const noexcept {
    return !guarded_ || guarded_->gone(who) || guarded_->state_of(who) == member_state::left;
  }

  [[nodiscard]] std::uint64_t last_ticket() const noexcept {
    return last_ticket_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t in_flight_count() const noexcept { return running_; }
  [[nodiscard]] std::size_t lane_count() const noexcept { return lanes_.size(); }

  // For messages.
  /// A receive that is open has begun: takes the oldest message that it may, or waits for one.
  void look_for_message(message_execution& op);
  [[nodiscard]] bool departed(rank_t who, const group& among) const noexcept {
    return departed(who) || among.left(who);
  }
  /// All ranks but this one.
  [[nodiscard]] bool all_departed(const group& among) const noexcept;

  // poller
  std::size_t poll(std::size_t budget) noexcept override;
  arming arm() noexcept override;
  void disarm() noexcept override;
  [[nodiscard]] std::size_t outstanding() const noexcept override { return waiting(); }

  // guard_sink: any thread
  void on_cause(const revoke& notice) noexcept override;
  void on_left(rank_t who, std::uint64_t last_ticket) noexcept override;
  [[nodiscard]] call_state state_of(std::uint64_t lane, std::uint64_t ticket) const noexcept override;

  // pools
  plan_execution& new_plan_execution();
  message_execution& new_message_execution();
  tiny_exchange& new_tiny_exchange();
  void recycle(plan_execution& e) noexcept;
  void recycle(message_execution& e) noexcept;
  void recycle(tiny_exchange& e) noexcept;

 private:
  verdict judge(rank_t from, const frame_header& header) noexcept override;
  void lane_revoked(rank_t from, const frame_header& header, const lane_revoke_body& body) noexcept override;
  void window_frame(rank_t from, const frame_header& header, const std::byte* payload) noexcept override;
  void link_broken(rank_t to, error why) noexcept override;
  void link_violated(rank_t from, const char* how) noexcept override;

  verdict judge_message(lane_state& lane, rank_t from, const frame_header& header) noexcept;
  verdict arrived(lane_state& lane, const message_box::arrival& message) noexcept;
  [[nodiscard]] in_flight* taker_of(const lane_state& lane,
                                    const message_box::arrival& message) const noexcept;
  [[nodiscard]] static bool may_take(const in_flight& op, const message_box::arrival& message) noexcept;
  bool meet(in_flight& op, const message_box::arrival& message) noexcept;
  void claim(lane_state& lane, rank_t from, std::uint64_t number) noexcept;
  void serve_next(lane_state& lane, rank_t from) noexcept;
  std::uint64_t take_message_ticket(lane_state& lane, call& what);
  void begin_message(in_flight& op);
  void give_back_send(const group& among, const call& what) noexcept;
  bool judge_early_message(in_flight& op) noexcept;
  [[nodiscard]] message_box& messages_of(lane_state& lane);
  void make_own_link();
  template <class Visit>
  void for_links(Visit visit);
  lane_state& lane_of(std::uint64_t key);
  lane_state& adopt_lane(std::uint64_t name, group& among);
  void remember_ended(std::uint64_t key) noexcept;
  /// Calls and operations on windows that have not ended.
  [[nodiscard]] std::size_t waiting() const noexcept { return running_ + window_operations_; }
  void end_windows(const error& why) noexcept;
  void windows_go_without(rank_t in_epoch, const group* only) noexcept;
  void report_slow_windows() noexcept;
  std::size_t poll_windows() noexcept;
  [[nodiscard]] bool windows_have_news() const noexcept;
  void tell_departure(std::uint64_t lane, const group& to) noexcept;
  void member_left(group& child, rank_t in_epoch) noexcept;
  void drop_if_unused(group& child) noexcept;
  template <class Visit>
  void for_members(const group& among, Visit visit);
  [[nodiscard]] static in_flight* find(const lane_state& lane, rank_t from,
                                       const frame_header& header) noexcept;
  /// Messages that came before the call are compared now; false when one differs.
  bool judge_early(in_flight& op) noexcept;
  /// This rank cannot serve the call; others must not wait for it if theirs is another.
  void refuse(in_flight& op, error why) noexcept;
  void end_lane(lane_state& lane, std::uint64_t ticket, error at_ticket, const error& elsewhere) noexcept;
  [[nodiscard]] static error told_cause(const lane_state& lane);
  void tell_lane_ended(const lane_state& lane, std::uint64_t ticket, const lane_revoke_body& body) noexcept;
  /// A rank that `op` needs has left. Collectives end so on all ranks, messages between others go on.
  void end_for_want_of(in_flight& op, rank_t gone) noexcept;
  /// Collectives of the lane from `ticket` on end for want of `gone`.
  void collectives_end(lane_state& lane, std::uint64_t ticket, rank_t gone) noexcept;
  void act_on_cause() noexcept;
  void act_on_departures() noexcept;
  void report_slow_operations() noexcept;
  void ask_around() noexcept;
  void act_on_lost_links() noexcept;
  void look_at_the_clock() noexcept;
  [[nodiscard]] bool departed(rank_t who) const noexcept;
  [[nodiscard]] rank_t departed_peer(const in_flight& op) const noexcept;
  /// The text is for `among`, the culprit still numbered as in the epoch.
  [[nodiscard]] error revoked_error(const group& among) const;
  in_flight& new_execution(group& among, const call& what, error& why_not);
  in_flight& execution_of(const prepared_call& found);
  [[nodiscard]] static plan_key plan_for(const group& among, const call& what, algorithm_kind algorithm,
                                         const combining& how);
  template <class Execution>
  static Execution& reuse(std::vector<Execution*>& free) noexcept;

  engine& loop_;
  rank_t rank_;
  rank_t size_;
  std::uint64_t epoch_;
  std::uint64_t max_lanes_;
  group everybody_;
  std::vector<std::unique_ptr<group>> children_;
  std::vector<std::unique_ptr<pair>> pairs_;
  std::unique_ptr<loopback> own_link_;  // null until the first message to itself
  std::vector<pair*> links_;            // by rank of the epoch: all of these, for whoever polls
  std::vector<std::uint32_t> sends_;    // tickets and operations in flight, by rank of the epoch
  std::vector<shm_wire*> lines_;
  bool all_lines_ = false;
  bool closed_ = false;

  std::unordered_map<std::uint64_t, std::unique_ptr<lane_state>> lanes_;
  lane_state* default_lane_ = nullptr;
  std::unordered_map<std::uint64_t, std::uint64_t> renewed_;  // by origin: what a lane is called by now
  std::vector<std::uint64_t> ended_order_;  // the latest ended keys, oldest overwritten first
  std::unordered_set<std::uint64_t> ended_keys_;
  std::size_t ended_next_ = 0;
  std::size_t running_ = 0;
  std::size_t running_lanes_ = 0;
  std::vector<window_side*> windows_;
  std::size_t window_operations_ = 0;
  std::atomic<std::uint64_t> last_ticket_{0};  // also read by the guard

  error cause_;
  std::unique_ptr<membership> guarded_;
  std::atomic<gpu_abort*> gpu_{nullptr};
  std::atomic<std::uint32_t> cause_phase_{0};  // 0 none, 1 being written, 2 to be acted on, 3 acted on
  revoke notice_;
  struct departure {
    std::atomic<bool> known{false};
    std::atomic<std::uint64_t> last_ticket{0};
    bool acted = false;
  };
  std::vector<departure> departures_;
  rank_t departed_count_ = 0;  // how many of them were acted on
  std::atomic<bool> departures_pending_{false};
  struct patience : timer {
    explicit patience(core& s) noexcept : timer{fired}, self{s} {}
    static void fired(operation& op) noexcept;
    core& self;
  };
  patience patience_{*this};  // while operations wait, for what only time tells
  struct lost_link {
    error why;
    time_point until = never;
  };
  std::vector<lost_link>
      lost_links_;  // by rank; each held back for a moment, in case the guard knows the cause
  time_point links_expire_ = never;

  std::vector<std::unique_ptr<plan_execution>> plan_executions_;
  std::vector<std::unique_ptr<message_execution>> message_executions_;
  std::vector<std::unique_ptr<tiny_exchange>> tiny_exchanges_;
  std::vector<plan_execution*> free_plan_executions_;
  std::vector<message_execution*> free_message_executions_;
  std::vector<tiny_exchange*> free_tiny_exchanges_;
};

template <class Visit>
void core::for_links(Visit visit) {
  for (pair* link : links_)
    if (link) visit(*link);
}

template <class Visit>
void core::for_members(const group& among, Visit visit) {
  for (auto& link : pairs_)
    if (link && among.member(link->peer()) != no_rank) visit(*link);
}

}  // namespace chorale
