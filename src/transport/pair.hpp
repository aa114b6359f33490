// One rank's traffic with one other: receives wait here for their messages, messages for their receives.
//
// Messages find their receive by key, in any order. What comes before its call is moved off the wire at once
// and kept, within the budget that the sender holds (see frame.hpp), so that no lane ever stands in another's
// way. The communicator judges every arrival's signature before anything else is done with it. Belongs to its
// engine's thread. Allocates only for early arrivals.
#pragma once

#include <chorale/async/error.hpp>
#include <chorale/transport/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace chorale {

/// A receive waiting for its message. Storage is the receiver's and stays put until `completed` was called or
/// the receive was withdrawn.
struct posted_receive {
  message_key key;
  signature call;
  std::uint64_t size = 0;  ///< bytes the message must have; the judge may set it when the message begins
  std::uint64_t received = 0;
  /// Bytes go straight here when `consume` is null.
  std::byte* target = nullptr;
  /// Takes the next `bytes` at `offset` of the message; called inside `pair::progress` or `pair::receive`.
  void (*consume)(posted_receive&, std::uint64_t offset, const std::byte* payload,
                  std::uint64_t bytes) noexcept = nullptr;
  void (*completed)(posted_receive&) noexcept = nullptr;

  // The pair's.
  outgoing ready;
  posted_receive* chain = nullptr;
  bool posted = false;
  bool said_ready = false;
};

/// What the communicator says about an arrival.
enum class verdict : std::uint8_t {
  current,  ///< belongs to an operation in flight, or to a call not made yet
  refused,  ///< the lane or the epoch ended, or the calls differ (the judge has dealt with that): forget it
};

class arrival_judge {
 public:
  virtual verdict judge(rank_t from, const frame_header& header) noexcept = 0;
  virtual void lane_revoked(rank_t from, const frame_header& header,
                            const lane_revoke_body& body) noexcept = 0;
  /// Whoever has windows takes it; `payload` is valid during the call.
  virtual void window_frame(rank_t /*from*/, const frame_header& /*header*/,
                            const std::byte* /*payload*/) noexcept {}
  virtual void link_broken(rank_t to, error why) noexcept = 0;
  virtual void link_violated(rank_t from, const char* how) noexcept = 0;

 protected:
  ~arrival_judge() = default;
};

class pair final : private frame_receiver {
 public:
  pair(rank_t peer, std::unique_ptr<wire> carrier, arrival_judge& judge);
  pair(const pair&) = delete;
  pair& operator=(const pair&) = delete;
  ~pair();

  [[nodiscard]] rank_t peer() const noexcept { return peer_; }
  [[nodiscard]] wire& carrier() noexcept { return *wire_; }

  /// `m.header` has key and signature, `m.data` and `m.size` the payload. May complete inside the call.
  void send(outgoing& m) noexcept;
  /// Takes `m` back: its memory is free afterwards; `handed_over` will not be called. True if a part of a
  /// frame is on the wire: the rest of that frame follows.
  bool abandon(outgoing& m) noexcept;

  /// May complete inside the call, when the message came early.
  void receive(posted_receive& r) noexcept;
  /// Takes `r` back: its memory is free afterwards; `completed` will not be called.
  void withdraw(posted_receive& r) noexcept;

  /// A frame of a window, `m.header` complete but for its size. Short ones overtake bulk data, long ones take
  /// turns with it: who wants an order between two sends the second when the first was handed over.
  void send_frame(outgoing& m) noexcept;

  /// Tells the peer that a lane ended.
  void send_lane_revoke(std::uint64_t lane, std::uint64_t ticket, const lane_revoke_body& body);
  /// Tells the peer what was called here, where no message of that call will follow: it compares.
  void send_signature(std::uint64_t lane, std::uint64_t ticket, const signature& call);

  /// Whether messages for {lane, ticket} came early; `visit(header)` for each, on any edge.
  template <class Visitor>
  void early(std::uint64_t lane, std::uint64_t ticket, Visitor visit) const {
    if (early_count_ == 0) return;
    for (const early_arrival* a = early_[bucket_of(lane, ticket, early_.size())]; a; a = a->chain)
      if (a->header.lane == lane && a->header.ticket == ticket) visit(a->header);
  }
  /// Early arrivals of a lane that ended are forgotten, their budget returned.
  void forget_lane(std::uint64_t lane) noexcept;
  /// Early arrivals of one operation that ended.
  void forget_ticket(std::uint64_t lane, std::uint64_t ticket) noexcept;

  /// Moves what can move; returns how much did.
  std::size_t progress(std::size_t budget) noexcept;
  /// Before `arm`: see wire.hpp.
  [[nodiscard]] bool announce_sleep() noexcept { return !broken_ && wire_->announce_sleep(wants_room()); }
  void fence_refused() noexcept { wire_->fence_refused(); }
  [[nodiscard]] bool arm() noexcept { return broken_ || wire_->arm(wants_room()); }
  void disarm() noexcept { wire_->disarm(); }
  [[nodiscard]] bool broken() const noexcept { return broken_; }
  [[nodiscard]] bool wants_room() const noexcept { return control_.first || bulk_.first; }
  /// Receives posted and messages under way.
  [[nodiscard]] std::size_t outstanding() const noexcept { return outstanding_; }
  [[nodiscard]] std::size_t early_arrivals() const noexcept { return early_count_; }

  /// For the one-line path: sends a tiny message in a line, unless none is free or the budget for what comes
  /// unasked is used up. The peer may be far ahead of us, and no line holds it up.
  [[nodiscard]] bool send_line(const tiny_line& line) noexcept;
  /// A line with a payload of `size` was taken off the wire by whoever wanted it.
  void line_taken(std::uint64_t size) noexcept;
  /// An early tiny message of this very operation, taken off if there.
  bool take_early_tiny(const message_key& key, std::byte* payload, std::size_t size) noexcept;
  /// A line that the one-line path found but that is not its own.
  void dispatch_tiny(const tiny_line& line) noexcept { on_tiny(line); }

 private:
  struct early_arrival {
    frame_header header;
    early_arrival* chain = nullptr;
    std::uint64_t budget = 0;  // what to give back when it is taken
    std::unique_ptr<std::byte[]> payload;
    std::uint64_t capacity = 0;
  };
  /// Some are kept for the next: who calls a little later than its peer takes no memory each time.
  struct give_back {
    pair* owner;
    void operator()(early_arrival* used) const noexcept { owner->recycle(used); }
  };
  using taken_arrival = std::unique_ptr<early_arrival, give_back>;
  struct list {
    outgoing* first = nullptr;
    outgoing* last = nullptr;
  };
  struct owned_notice {
    outgoing message;
    lane_revoke_body body;
    std::unique_ptr<owned_notice> next;
  };

  std::byte* direct_target(const frame_header& header) noexcept override;
  void on_frame(const frame_header& header, const std::byte* payload) noexcept override;
  void on_tiny(const tiny_line& line) noexcept override;
  void on_broken(error why) noexcept override;

  static std::size_t bucket_of(std::uint64_t lane, std::uint64_t ticket, std::size_t buckets) noexcept {
    return (lane * 0x9e3779b97f4a7c15u + ticket * 0xc2b2ae3d27d4eb4fu) >> 32 & (buckets - 1);
  }
  posted_receive* find_posted(const frame_header& header) const noexcept;
  void unlink_posted(posted_receive& r) noexcept;
  void insert_posted(posted_receive& r) noexcept;
  void keep_early(const frame_header& header, const std::byte* payload, std::uint64_t budget) noexcept;
  void recycle(early_arrival* used) noexcept;
  taken_arrival take_early(const message_key& key, frame_kind kind) noexcept;
  template <class Match>
  std::uint64_t forget_early(std::size_t bucket, Match match) noexcept;

  void take_whole(posted_receive& r, const std::byte* payload, std::uint64_t size) noexcept;
  void take_part(posted_receive& r, const std::byte* payload, std::uint64_t size) noexcept;
  void on_ready(const frame_header& header) noexcept;
  /// For what came unasked; false, and the link is violated, if the peer had none left.
  bool hold_budget(std::uint64_t bytes) noexcept;
  void return_budget(std::uint64_t bytes) noexcept;
  owned_notice& new_notice(frame_kind kind, std::uint64_t lane, std::uint64_t ticket);

  void append(list& to, outgoing& m, outgoing::place where) noexcept;
  void remove(outgoing& m) noexcept;
  bool drop_control(outgoing& m) noexcept;
  list& list_of(const outgoing& m) noexcept;
  void pump() noexcept;
  bool pump_one(outgoing& m) noexcept;

  rank_t peer_;
  std::unique_ptr<wire> wire_;
  arrival_judge& judge_;
  bool broken_ = false;
  bool pumping_ = false;
  std::size_t outstanding_ = 0;

  std::vector<posted_receive*> posted_;
  std::size_t posted_count_ = 0;
  std::vector<early_arrival*> early_;
  std::size_t early_count_ = 0;
  early_arrival* spare_ = nullptr;
  std::size_t spare_count_ = 0;

  list control_;  // headers and eager messages: they overtake bulk data at frame boundaries
  list bulk_;     // released by `ready`; frames of several messages interleave
  list waiting_;  // announced, until `ready` comes
  outgoing* in_frame_ = nullptr;

  std::uint64_t send_budget_ = eager_budget;
  std::uint64_t held_budget_ = 0;  // taken by what arrived, not yet returned
  std::uint64_t owed_budget_ = 0;  // of it, used up: to be returned
  outgoing credit_;
  std::unique_ptr<owned_notice> notices_;
};

}  // namespace chorale
