// One CTA's part in one operation: start, admission, waiting, end. What every GPU kernel here shares.
//
// Written against a machine `M` that offers threads, barriers, memory accesses of a stated order and a clock;
// gpu_machine.cuh is the GPU's, tests/kernels/host_machine.hpp runs the same code on CPU threads.
//
// Life of an operation, on every CTA:
//   begin   reads the counter; false when the group is stopped (a stale replay ends here at once)
//   ...     pushes to peers, sends its signature, waits
//   admit   compares the peers' signatures; before the CTA's first store to user memory
//   ...     stores results
//   end     advances the counter; of a plain launch the last CTA writes the completion flag; if any CTA
//   failed,
//           the whole output is filled with NaN first and the sticky status word is written
// Every wait can be stopped: each loop reads the block's stop word every 64 tries, and one thread per CTA
// looks at the host's abort word at most every 30 µs and publishes it there.
#pragma once

#include <chorale/kernels/device_block.hpp>

namespace chorale::kernels {

inline constexpr std::uint32_t tries_between_looks = 64;
inline constexpr std::uint64_t abort_poll_ns = 30'000;
inline constexpr std::uint64_t landing_ns = 20'000;   ///< more than any store needs to reach the own L2
inline constexpr std::uint32_t poison = 0xffffffffu;  ///< a NaN as f32, all ones as an integer
inline constexpr std::uint64_t fill_chunk = 65536;    ///< elements that a CTA poisons at a time
inline constexpr std::uint16_t cause_mismatch = 4;    ///< errc::mismatch

/// Shared memory of a CTA.
struct cta_shared {
  std::uint64_t poll_at;  ///< clock of the next look at the abort word
  std::uint32_t ticket;
};

template <class M>
class operation {
 public:
  CHORALE_HOST_DEVICE operation(M& machine, const all_reduce_args& args)
      : m_{machine}, args_{args}, group_{args.group}, block_{*args.group.block} {}

  [[nodiscard]] CHORALE_HOST_DEVICE bool begin() {
    if (m_.thread() == 0) {
      m_.shared().poll_at = 0;
      m_.count(&block_.entered);
    }
    const cta_record last = block_.records[m_.cta()];
    counter_ = next_counter(last.counter);
    ended_ = last.ended_before + m_.ctas();
    const bool stopped = m_.sync_or(m_.load_relaxed(&block_.stop) != 0);
    if (stopped) return false;
    return !rolls_over(last.counter, counter_) || roll_over();
  }

  [[nodiscard]] CHORALE_HOST_DEVICE std::uint64_t counter() const { return counter_; }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t flag() const { return wire_flag(counter_); }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t parity() const { return parity_of(counter_); }

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
      m_.store_packet(signature_slot(group_, peer, group_.rank, parity(), m_.cta(), part),
                      signature_packet(args_.what, part, flag()));
      return true;
    });
  }
  /// Receives the peers' signatures and compares. Called by every thread, the last warp works; false there if
  /// a rank disagrees or the group was stopped. The verdict reaches the others through sync_or.
  [[nodiscard]] CHORALE_HOST_DEVICE bool check_signatures() {
    return for_signature_lanes([&](std::uint32_t peer, std::uint32_t part) {
      const packet* slot = signature_slot(group_, group_.rank, peer, parity(), m_.cta(), part);
      packet theirs{};
      if (!wait([&] { return carries(theirs = m_.load_packet(slot), flag()); })) return false;
      if (payload(theirs) == payload(signature_packet(args_.what, part, flag()))) return true;
      stop({group_.generation, cause_mismatch, static_cast<std::int16_t>(peer)});
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

  template <class Visit>
  CHORALE_HOST_DEVICE bool for_signature_lanes(Visit visit) {
    const std::uint32_t warp = m_.threads() > 32 ? 32 : 1;
    const std::uint32_t first = m_.threads() - warp;
    if (m_.thread() < first) return true;
    for (std::uint32_t lane = m_.thread() - first; lane < (group_.size - 1) * signature_parts; lane += warp) {
      const std::uint32_t other = lane / signature_parts;
      const std::uint32_t peer = other < group_.rank ? other : other + 1;
      if (!visit(peer, lane % signature_parts)) return false;
    }
    return true;
  }

  /// Writes `value` to every peer's barrier word and waits for theirs. By thread 0.
  [[nodiscard]] CHORALE_HOST_DEVICE bool rank_barrier(std::uint64_t value) {
    for (std::uint32_t r = 0; r < group_.size; ++r)
      if (r != group_.rank) m_.store_release_system(barrier_word(group_, r, group_.rank), value);
    for (std::uint32_t r = 0; r < group_.size; ++r) {
      const std::uint64_t* theirs = barrier_word(group_, group_.rank, r == group_.rank ? 0 : r);
      if (r != group_.rank && !wait([&] { return m_.load_acquire_system(theirs) >= value; })) return false;
    }
    return true;
  }

  /// The upper part of the counter steps: all ranks meet, CTA 0 clears its region's 32-bit flags, all meet
  /// again. Once every 2^32 operations. Barrier words carry the whole counter and need no clearing.
  [[nodiscard]] CHORALE_HOST_DEVICE bool roll_over() {
    bool ok = true;
    if (m_.cta() == 0) {
      if (m_.thread() == 0) ok = rank_barrier(2 * counter_);
      if (m_.sync_or(!ok)) return false;
      auto* slots = reinterpret_cast<packet*>(group_.regions[group_.rank]);
      for (std::uint64_t i = m_.thread(); i < group_.layout.cleared_end / sizeof(packet); i += m_.threads())
        m_.store_packet(slots + i, {0, 0});
      m_.fence_system();
      m_.sync();
      if (m_.thread() == 0) {
        ok = rank_barrier(2 * counter_ + 1);
        if (ok) m_.store_release_device(&block_.rolled, counter_);
      }
    } else if (m_.thread() == 0) {
      ok = wait([&] { return m_.load_acquire_device(&block_.rolled) == counter_; });
    }
    return !m_.sync_or(!ok);
  }

  /// For the next kernel's CTAs. Those of this grid that have not begun yet read other records.
  CHORALE_HOST_DEVICE void keep_records() {
    const cta_record now{counter_, ended_};
    if (m_.thread() == 0) block_.records[m_.cta()] = now;
    if (m_.cta() != 0) return;
    for (std::uint32_t c = m_.ctas() + m_.thread(); c < max_ctas; c += m_.threads()) block_.records[c] = now;
  }

  /// Whether this CTA came last and none failed: then it speaks to the host.
  CHORALE_HOST_DEVICE bool is_last_of_good() {
    m_.fence_device();
    if (m_.fetch_add(&block_.arrived, 1u) + 1 != ended_) return false;
    m_.fence_device();
    return m_.load_relaxed(&block_.failed) == 0;
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
    auto* out = reinterpret_cast<std::uint32_t*>(args_.out);
    for (;;) {
      if (m_.thread() == 0) m_.shared().ticket = m_.fetch_add(&block_.fill_next, 1u);
      m_.sync();
      const std::uint64_t begin = m_.shared().ticket * fill_chunk;
      m_.sync();
      if (begin >= args_.count) break;
      const std::uint64_t end = begin + fill_chunk < args_.count ? begin + fill_chunk : args_.count;
      for (std::uint64_t i = begin + m_.thread(); i < end; i += m_.threads()) out[i] = poison;
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
  const all_reduce_args& args_;
  const group_view& group_;
  device_block& block_;
  std::uint64_t counter_ = 0;
  std::uint32_t ended_ = 0;  ///< what `arrived` reads when all CTAs of this operation have come to the end
};

}  // namespace chorale::kernels
