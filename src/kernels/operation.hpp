// One CTA's part in one operation: start, admission, waiting, end. What every GPU kernel here shares.
//
// Written against a machine `M` that offers threads, barriers, memory accesses of a stated order and a clock;
// gpu_machine.cuh is the GPU's, tests/kernels/host_machine.hpp runs the same code on CPU threads.
//
// Life of an operation, on every CTA:
//   begin   reads the counters; false when the group is stopped (a stale replay ends here at once)
//   ...     pushes to peers, sends its signature, waits
//   admit   compares the peers' signatures; before the CTA's first store to user memory
//   ...     stores results
//   end     advances the counters; of a plain launch the last CTA writes the completion flag; if any CTA
//           failed, all that the operation would have written is filled with NaN first and the sticky status
//           word is written
// Only the edges in `peers` take part, and of an edge only the CTAs below its `ctas`: both ranks know both.
// Every wait can be stopped: each loop reads the block's stop word every 64 tries, and one thread per CTA
// looks at the host's abort word at most every 30 µs and publishes it there.
#pragma once

#include <chorale/kernels/device_block.hpp>

namespace chorale::kernels {

inline constexpr std::uint32_t tries_between_looks = 64;
inline constexpr std::uint64_t abort_poll_ns = 30'000;
inline constexpr std::uint64_t landing_ns = 20'000;  ///< more than any store needs to reach the own L2
inline constexpr std::uint64_t fill_chunk = 262144;  ///< bytes that a CTA fills at a time
inline constexpr std::byte poison{0xff};             ///< a NaN in every float type, all ones as an integer
inline constexpr std::uint16_t cause_mismatch = 4;   ///< errc::mismatch
inline constexpr std::uint8_t op_premul_sum = 6;     ///< reduction::premul_sum

/// Shared memory of a CTA.
struct cta_shared {
  std::uint64_t poll_at;  ///< clock of the next look at the abort word
  std::uint32_t ticket;
  std::uint64_t counters[max_ranks - 1];  ///< of this operation, per edge from the second on
  std::uint64_t scalars[max_ranks];       ///< premul_sum, by rank; after the signatures were checked
  /// Ring, by half. First sequence numbers per part of the operation (the second gathers) and edge; where the
  /// chunk to be folded lies, by rank; chunks that the own pusher has read, that the own reducers have
  /// stored.
  std::uint64_t sent[2][2][max_ranks - 1];
  std::uint64_t received[2][2][max_ranks - 1];
  const std::byte* sources[2][max_ranks];
  std::uint32_t pushed[2];
  std::uint32_t reduced[2];
};

/// 16 bytes of any elements.
struct alignas(16) vector16 {
  std::uint64_t w[2];
};

/// Kernels of two ranks know their own number when they are compiled.
template <class M>
CHORALE_HOST_DEVICE std::uint32_t own_rank(const exchange_args& args) {
  return M::ranks == 2 ? 0 : args.group.rank;
}

template <class M>
class operation {
 public:
  CHORALE_HOST_DEVICE operation(M& machine, const exchange_args& args)
      : m_{machine}, args_{args}, group_{args.group}, block_{*args.group.block} {}

  [[nodiscard]] CHORALE_HOST_DEVICE bool begin() {
    cta_shared& shared = m_.shared();
    if (m_.thread() == 0) {
      shared.poll_at = 0;
      shared.pushed[0] = shared.pushed[1] = shared.reduced[0] = shared.reduced[1] = 0;
      m_.count(&block_.entered);
    }
    const cta_record last = block_.records[m_.cta()];
    ended_ = last.ended_before + m_.ctas();
    counter_ = counter_after(0, last.counter);
    if (!is_pair())
      for (std::uint32_t edge = 1 + m_.thread(); edge < edges(); edge += m_.threads())
        shared.counters[edge] = counter_after(edge, block_.counters[m_.cta()][edge]);
    const bool stopped = m_.sync_or(m_.load_relaxed(&block_.stop) != 0);
    if (stopped) return false;
    return !any_edge_rolls() || roll_over();
  }

  /// The number of this operation on the edge to `peer`.
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint64_t counter(std::uint32_t peer) const {
    return is_pair() ? counter_ : counter_of_edge(edge_to(peer));
  }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t flag(std::uint32_t peer) const {
    return wire_flag(counter(peer));
  }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t parity(std::uint32_t peer) const {
    return parity_of(counter(peer));
  }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t edge_to(std::uint32_t peer) const {
    return source_slot(own(), peer);
  }
  /// This rank, as the parameters number ranks.
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t own() const { return own_rank<M>(args_); }
  /// Whether this CTA serves the edge.
  [[nodiscard]] CHORALE_HOST_DEVICE bool serves(std::uint32_t peer) const {
    return has(args_.peers, peer) && m_.cta() < args_.ctas[peer];
  }
  [[nodiscard]] CHORALE_HOST_DEVICE bool has_scalars() const { return args_.op == op_premul_sum; }

  /// Waits until `ready()`; false when the group was stopped meanwhile.
  template <class Ready>
  [[nodiscard]] CHORALE_HOST_DEVICE bool wait(Ready ready) {
    for (std::uint32_t tries = 1;; ++tries) {
      if (ready()) return true;
      m_.pause();
      if (tries % tries_between_looks == 0 && stopped()) return false;
    }
  }

  /// The same for a warp whose lanes must go on together: `ready` and the outcome are uniform in the warp.
  template <class Ready>
  [[nodiscard]] CHORALE_HOST_DEVICE bool wait_together(Ready ready) {
    for (std::uint32_t tries = 1;; ++tries) {
      if (ready()) return true;
      if (tries % tries_between_looks == 0 && m_.any_lane(stopped())) return false;
    }
  }

  /// Sends this rank's signature to the same CTA of every peer. Called by every thread; the last warp works.
  CHORALE_HOST_DEVICE void send_signature() {
    for_signature_lanes([&](std::uint32_t peer, std::uint32_t part) {
      const packet p = part < signature_parts ? signature_packet(args_, peer, part, flag(peer))
                                              : word_packet(args_.scalar, flag(peer));
      m_.store_packet(signature_slot(args_, peer, own(), parity(peer), m_.cta(), part), p);
      return true;
    });
  }
  /// Receives the peers' signatures and compares. Called by every thread, the last warp works; false there if
  /// a rank disagrees or the group was stopped. The verdict reaches the others through sync_or.
  [[nodiscard]] CHORALE_HOST_DEVICE bool check_signatures() {
    if (has_scalars() && m_.thread() + 1 == m_.threads()) m_.shared().scalars[own()] = args_.scalar;
    return for_signature_lanes([&](std::uint32_t peer, std::uint32_t part) {
      const packet* slot = signature_slot(args_, own(), peer, parity(peer), m_.cta(), part);
      const std::uint32_t expected = flag(peer);
      packet theirs{};
      if (!wait([&] { return carries(theirs = m_.load_packet(slot), expected); })) return false;
      if (part == signature_parts) {
        m_.shared().scalars[peer] = payload(theirs);
        return true;
      }
      if (payload(theirs) == payload(signature_packet(args_, peer, part, expected))) return true;
      const std::uint32_t culprit = is_pair() ? args_.pair_peer : peer;
      stop({group_.generation, cause_mismatch, static_cast<std::int16_t>(culprit)});
      return false;
    });
  }

  /// Ends the CTA's part. Called by every thread; `ok` is the thread's own view.
  CHORALE_HOST_DEVICE void end(bool ok) {
    const bool failed = m_.sync_or(!ok);
    keep_records();
    if (failed) return end_failed();
    if (m_.thread() != 0) return;
    // With nobody to tell, the kernel's end is enough, and nothing here is waited for.
    if (args_.tells_host == 0 || m_.ctas() == 1)
      m_.count(&block_.arrived);
    else if (!is_last_of_good())
      return;
    if (args_.tells_host != 0) tell_host();
  }

 private:
  /// First verdict wins; it stays for the life of the group.
  CHORALE_HOST_DEVICE void stop(verdict v) { m_.compare_exchange(&block_.stop, 0, pack(v)); }

  [[nodiscard]] CHORALE_HOST_DEVICE bool stopped() {
    if (m_.load_relaxed(&block_.stop) != 0) return true;
    const std::uint64_t now = m_.nanoseconds();
    if (!m_.claim(&m_.shared().poll_at, now, now + abort_poll_ns)) return false;
    const std::uint64_t word = m_.load_system(group_.abort);
    if (word == 0 || unpack(word).generation != group_.generation) return false;
    stop(unpack(word));
    return true;
  }

  [[nodiscard]] CHORALE_HOST_DEVICE bool is_pair() const {
    return M::ranks != 0 ? M::ranks == 2 : group_.size == 2;
  }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t edges() const { return is_pair() ? 1 : group_.size - 1; }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t peer_at(std::uint32_t edge) const {
    if (is_pair() && M::ranks != 0) return 1;
    return edge < own() ? edge : edge + 1;
  }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint64_t counter_after(std::uint32_t edge,
                                                                std::uint64_t last) const {
    return has(args_.peers, peer_at(edge)) ? next_counter(last) : last;
  }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint64_t counter_of_edge(std::uint32_t edge) const {
    return is_pair() || edge == 0 ? counter_ : m_.shared().counters[edge];
  }

  /// The last warp's lanes, four per edge, see to a packet of a signature each.
  template <class Visit>
  CHORALE_HOST_DEVICE bool for_signature_lanes(Visit visit) {
    static_assert(signature_slots == 4);
    const std::uint32_t warp = m_.threads() > 32 ? 32 : 1;
    const std::uint32_t first = m_.threads() - warp;
    if (m_.thread() < first) return true;
    const std::uint32_t parts = has_scalars() ? signature_slots : signature_parts;
    for (std::uint32_t lane = m_.thread() - first; lane < edges() * signature_slots; lane += warp) {
      const std::uint32_t peer = peer_at(lane / signature_slots);
      const std::uint32_t part = lane % signature_slots;
      if (part < parts && serves(peer) && !visit(peer, part)) return false;
    }
    return true;
  }

  [[nodiscard]] CHORALE_HOST_DEVICE bool rolls(std::uint32_t edge) const {
    return serves(peer_at(edge)) && rolls_over(counter_of_edge(edge));
  }
  [[nodiscard]] CHORALE_HOST_DEVICE bool any_edge_rolls() const {
    for (std::uint32_t edge = 0; edge < edges(); ++edge)
      if (rolls(edge)) return true;
    return false;
  }

  /// Writes 2 × counter + `half` to the other ranks of all edges that roll over, and waits for theirs. By
  /// thread 0. Barrier words carry the whole counter and need no clearing.
  [[nodiscard]] CHORALE_HOST_DEVICE bool meet_rolling_peers(std::uint32_t half) {
    for (std::uint32_t edge = 0; edge < edges(); ++edge)
      if (rolls(edge))
        m_.store_release_system(barrier_word(args_, peer_at(edge), own()), 2 * counter_of_edge(edge) + half);
    for (std::uint32_t edge = 0; edge < edges(); ++edge) {
      const std::uint64_t* theirs = barrier_word(args_, own(), peer_at(edge));
      const std::uint64_t value = 2 * counter_of_edge(edge) + half;
      if (rolls(edge) && !wait([&] { return m_.load_acquire_system(theirs) >= value; })) return false;
    }
    return true;
  }
  CHORALE_HOST_DEVICE void clear_packets(void* from, std::uint64_t bytes) {
    for (std::uint64_t i = m_.thread(); i < bytes / sizeof(packet); i += m_.threads())
      m_.store_packet(static_cast<packet*>(from) + i, {0, 0});
  }

  /// The upper part of an edge's counter steps: its ranks meet, CTA 0 clears the 32-bit flags that the peer
  /// left in the own region, they meet again. Once every 2^32 operations.
  [[nodiscard]] CHORALE_HOST_DEVICE bool roll_over() {
    bool ok = true;
    if (m_.cta() == 0) {
      if (m_.thread() == 0) ok = meet_rolling_peers(0);
      if (m_.sync_or(!ok)) return false;
      for (std::uint32_t edge = 0; edge < edges(); ++edge) {
        if (!rolls(edge)) continue;
        clear_packets(signature_slot(args_, own(), peer_at(edge), 0, 0, 0), signatures_stride);
        clear_packets(packet_slots(args_, own(), peer_at(edge), 0), 2 * units(group_.layout.packets_stride));
      }
      m_.fence_system();
      m_.sync();
      if (m_.thread() == 0) ok = meet_rolling_peers(1);
      if (m_.thread() == 0 && ok)
        for (std::uint32_t edge = 0; edge < edges(); ++edge)
          if (rolls(edge)) m_.store_release_device(&block_.rolled[edge], counter_of_edge(edge));
    } else if (m_.thread() == 0) {
      for (std::uint32_t edge = 0; ok && edge < edges(); ++edge)
        if (rolls(edge))
          ok = wait([&] { return m_.load_acquire_device(&block_.rolled[edge]) == counter_of_edge(edge); });
    }
    return !m_.sync_or(!ok);
  }

  /// For the next kernel's CTAs. Those of this grid that have not begun yet read other records.
  CHORALE_HOST_DEVICE void keep_records() {
    const cta_record now{counter_, ended_};
    if (m_.thread() == 0) keep_record(m_.cta(), now);
    if (m_.cta() != 0) return;
    for (std::uint32_t c = m_.ctas() + m_.thread(); c < max_ctas; c += m_.threads()) keep_record(c, now);
  }
  CHORALE_HOST_DEVICE void keep_record(std::uint32_t cta, const cta_record& now) {
    block_.records[cta] = now;
    if (is_pair()) return;
    for (std::uint32_t edge = 1; edge < edges(); ++edge) block_.counters[cta][edge] = counter_of_edge(edge);
  }

  /// Whether this CTA came last and none failed: then it speaks to the host.
  CHORALE_HOST_DEVICE bool is_last_of_good() {
    m_.fence_device();
    if (m_.fetch_add(&block_.arrived, 1u) + 1 != ended_) return false;
    m_.fence_device();
    return m_.load_relaxed(&block_.failed) == 0;
  }

  /// Fills bytes [begin, begin + fill_chunk) of all extents that this operation writes, one after the other;
  /// false when that lies behind them.
  CHORALE_HOST_DEVICE bool fill(std::uint64_t begin) {
    const std::uint64_t end = begin + fill_chunk;
    std::uint64_t before = 0;
    for (std::uint32_t r = 0; r < group_.size; ++r) {
      const std::uint64_t after = before + args_.edges[r].receive_bytes;
      const std::uint64_t first = begin > before ? begin : before;
      const std::uint64_t last = end < after ? end : after;
      if (first < last) m_.fill(args_.edges[r].receive + (first - before), poison, last - first);
      before = after;
    }
    return begin < before;
  }

  /// Fills the output with NaN once no CTA writes results any more; the CTAs that failed share the work.
  CHORALE_HOST_DEVICE void end_failed() {
    if (m_.thread() == 0) {
      m_.fetch_add(&block_.failed, 1u);
      m_.fence_device();
      m_.fetch_add(&block_.arrived, 1u);
      while (m_.load_relaxed(&block_.arrived) != ended_) m_.pause();
      m_.fence_device();
      // CTAs of an operation that tells nobody arrive without waiting for their last stores to land
      const std::uint64_t landed = m_.nanoseconds() + landing_ns;
      while (m_.nanoseconds() < landed) m_.pause();
    }
    m_.sync();
    for (;;) {
      if (m_.thread() == 0) m_.shared().ticket = m_.fetch_add(&block_.fill_next, 1u);
      m_.sync();
      const std::uint64_t begin = m_.shared().ticket * fill_chunk;
      m_.sync();
      if (!fill(begin)) break;
    }
    m_.sync();
    if (m_.thread() != 0) return;
    const std::uint32_t sharers = m_.load_relaxed(&block_.failed);  // before the last of them clears it
    m_.fence_device();
    if (m_.fetch_add(&block_.departed, 1u) + 1 != sharers) return;
    block_.failed = 0;
    block_.departed = 0;
    block_.fill_next = 0;
    report_failure();
    if (args_.tells_host != 0) tell_host();
  }

  CHORALE_HOST_DEVICE void report_failure() {
    if (args_.launch != 0 && m_.load_system(&group_.host->failed_from) == 0)
      m_.store_release_system(&group_.host->failed_from, args_.launch);
    if (m_.load_system(&group_.host->status) == 0)
      m_.store_release_system(&group_.host->status, m_.load_relaxed(&block_.stop));
  }

  CHORALE_HOST_DEVICE void tell_host() {
    m_.fence_system();
    m_.store_release_system(&group_.host->done, args_.launch);
  }

  M& m_;
  const exchange_args& args_;
  const group_view& group_;
  device_block& block_;
  std::uint64_t counter_ = 0;  ///< of the first edge; the others lie in shared memory
  std::uint32_t ended_ = 0;    ///< what `arrived` reads when all CTAs of this operation have come to the end
};

}  // namespace chorale::kernels
