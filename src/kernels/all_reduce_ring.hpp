// Ring all-reduce: push chunks into the peers' scratch, reduce locally, all in one kernel.
//
// A CTA is two halves, each with a stripe of the message and two roles that run side by side:
//   pushers   wait for a credit from every peer, copy the next chunk from the user's input into the peers'
//             slots, then raise the stripe's flag there
//   reducers  wait for every peer's flag, add the chunks to the own input in rank order, store the sum to the
//             user's output, then give the credits back; before their first store, the reducers of both
//             halves meet to admit the operation
// With bulk copies one thread pushes, and a warp is all that role takes. Two halves, because raising a flag
// drains a pusher: meanwhile the other one keeps the link busy. User buffers are touched by their owner only.
// In place, reducers also wait until the local pushers have read the chunk. Sequence numbers per stripe run
// through all operations and live in the device block.
#pragma once

#include <chorale/kernels/all_reduce_packets.hpp>

namespace chorale::kernels {

struct alignas(16) f32x4 {
  float v[4];
};
CHORALE_HOST_DEVICE inline f32x4 add(const f32x4& a, const f32x4& b) {
  return {{a.v[0] + b.v[0], a.v[1] + b.v[1], a.v[2] + b.v[2], a.v[3] + b.v[3]}};
}

/// Threads of a CTA that work and meet together.
struct cta_role {
  std::uint32_t id;     ///< of its barrier
  std::uint32_t first;  ///< thread
  std::uint32_t threads;
};

/// A stripe's position in the message: chunk, sequence number, slot, extent.
class stripe_walk {
 public:
  CHORALE_HOST_DEVICE stripe_walk(const all_reduce_args& args, std::uint32_t stripe, std::uint64_t sequence)
      : args_{args},
        begin_{static_cast<std::uint64_t>(stripe) * args.chunk},
        sequence_{sequence},
        slot_{static_cast<std::uint32_t>(sequence % args.group.layout.slots)} {}
  [[nodiscard]] CHORALE_HOST_DEVICE bool more() const { return begin_ < args_.count; }
  CHORALE_HOST_DEVICE void step() {
    begin_ += static_cast<std::uint64_t>(args_.stripes) * args_.chunk;
    ++sequence_;
    if (++slot_ == args_.group.layout.slots) slot_ = 0;
  }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint64_t sequence() const { return sequence_; }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t slot() const { return slot_; }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint64_t begin() const { return begin_; }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t length() const {
    const std::uint64_t rest = args_.count - begin_;
    return rest < args_.chunk ? static_cast<std::uint32_t>(rest) : args_.chunk;
  }

 private:
  const all_reduce_args& args_;
  std::uint64_t begin_;
  std::uint64_t sequence_;
  std::uint32_t slot_;
};

// Nothing here releases or fences while bulk stores are under way: a fence waits for all stores of the SM,
// those of the next chunks included, and with many CTAs the link then idles for most of the time. Waiting
// threads look with relaxed loads and acquire once, when it is there.

/// Whether every peer has room for `sequence` on `stripe`.
template <class M>
CHORALE_HOST_DEVICE bool has_credits(const M& m, const group_view& group, std::uint32_t stripe,
                                     std::uint64_t sequence) {
  for (std::uint32_t r = 0; r < group.size; ++r)
    if (r != group.rank &&
        !has_credit(sequence, m.load_system(credit_word(group, group.rank, r, stripe)), group.layout.slots))
      return false;
  return true;
}
/// By one thread: until every peer has.
template <class M>
CHORALE_HOST_DEVICE bool await_credits(M& m, operation<M>& op, const group_view& group, std::uint32_t stripe,
                                       std::uint64_t sequence) {
  if (!op.wait([&] { return has_credits(m, group, stripe, sequence); })) return false;
  for (std::uint32_t r = 0; r < group.size; ++r)
    if (r != group.rank) m.load_acquire_system(credit_word(group, group.rank, r, stripe));
  return true;
}
/// By one thread, once the data is at the peers: chunks below `delivered` may be consumed.
template <class M>
CHORALE_HOST_DEVICE void raise_flags(M& m, const all_reduce_args& args, std::uint32_t stripe,
                                     std::uint64_t delivered) {
  const group_view& group = args.group;
  for (std::uint32_t r = 0; r < group.size; ++r)
    if (r != group.rank) m.store_relaxed_system(flag_word(group, r, group.rank, stripe), delivered);
  if (args.in_place != 0) m.store_relaxed_system(&group.block->ring_pushed[stripe].value, delivered);
}

/// Plain-store pusher, for any alignment. A machine with bulk copies replaces it for aligned buffers.
template <class M>
CHORALE_HOST_DEVICE bool push_stripe(M& m, operation<M>& op, const all_reduce_args& args,
                                     const cta_role& role, std::uint32_t stripe, std::uint64_t sequence) {
  const group_view& group = args.group;
  const std::uint32_t thread = m.thread() - role.first;
  for (stripe_walk walk{args, stripe, sequence}; walk.more(); walk.step()) {
    bool ok = true;
    if (thread == 0) ok = await_credits(m, op, group, stripe, walk.sequence());
    if (m.sync_or(role, !ok)) return false;
    for (std::uint32_t r = 0; r < group.size; ++r) {
      if (r == group.rank) continue;
      auto* to = reinterpret_cast<float*>(ring_slot(group, r, group.rank, stripe, walk.slot()));
      m.copy(to, args.in + walk.begin(), walk.length(), args.alignment == 16, thread, role.threads);
    }
    m.sync(role);
    if (thread == 0) {
      m.fence_system();
      raise_flags(m, args, stripe, walk.sequence() + 1);
    }
  }
  return true;
}

/// By one thread: until every peer's chunk lies here and, in place, the own one has been read.
template <class M>
CHORALE_HOST_DEVICE bool await_chunk(M& m, operation<M>& op, const all_reduce_args& args,
                                     std::uint32_t stripe, std::uint64_t sequence) {
  const group_view& group = args.group;
  for (std::uint32_t r = 0; r < group.size; ++r) {
    if (r == group.rank) continue;
    const std::uint64_t* word = flag_word(group, group.rank, r, stripe);
    if (!op.wait([&] { return m.load_system(word) > sequence; })) return false;
    m.load_acquire_system(word);
  }
  const std::uint64_t* pushed = &group.block->ring_pushed[stripe].value;
  return args.in_place == 0 || op.wait([&] { return m.load_acquire_device(pushed) > sequence; });
}

/// Sums of vectors of a chunk over all ranks, in rank order.
template <std::uint32_t Ranks>
struct vector_sum {
  const f32x4* in;
  f32x4* out;
  const std::byte* scratch;  ///< of the first source; the others follow in rank order, the own rank left out
  std::uint64_t stride;
  std::uint32_t rank, ranks;

  /// Those at `at`, `at + step`, ...: `Ahead` of them, so that their loads are under way together.
  template <std::uint32_t Ahead, class M>
  CHORALE_HOST_DEVICE void store(M& m, std::uint32_t at, std::uint32_t step) const {
    f32x4 sum[Ahead];
    const std::byte* from = scratch;
    CHORALE_UNROLL
    for (std::uint32_t r = 0; r < (Ranks != 0 ? Ranks : ranks); ++r) {
      f32x4 part[Ahead];
      if (r == rank) {
        CHORALE_UNROLL
        for (std::uint32_t k = 0; k < Ahead; ++k) part[k] = in[at + k * step];
      } else {
        CHORALE_UNROLL
        for (std::uint32_t k = 0; k < Ahead; ++k)
          part[k] = m.load_scratch(reinterpret_cast<const f32x4*>(from) + at + k * step);
        from += stride;
      }
      CHORALE_UNROLL
      for (std::uint32_t k = 0; k < Ahead; ++k) sum[k] = r == 0 ? part[k] : add(sum[k], part[k]);
    }
    CHORALE_UNROLL
    for (std::uint32_t k = 0; k < Ahead; ++k) out[at + k * step] = sum[k];
  }
};

/// Sums a chunk in rank order into the output; each thread has several vectors under way so that loads
/// overlap.
template <std::uint32_t Ranks, class M>
CHORALE_HOST_DEVICE void reduce_chunk(M& m, const all_reduce_args& args, const cta_role& role,
                                      const stripe_walk& walk, std::uint32_t stripe) {
  const group_view& group = args.group;
  const std::uint32_t ranks = Ranks != 0 ? Ranks : group.size;
  const std::uint32_t threads = role.threads;
  const std::uint32_t thread = m.thread() - role.first;
  const std::uint32_t length = walk.length();
  const float* in = args.in + walk.begin();
  float* out = args.out + walk.begin();
  // sources lie in rank order, the own rank left out
  const std::byte* scratch = ring_slot(group, group.rank, group.rank == 0 ? 1 : 0, stripe, walk.slot());
  const std::uint64_t stride = group.layout.ring_source_stride;
  std::uint32_t done = 0;
  if (args.alignment == 16) {
    const std::uint32_t vectors = length / 4;
    const vector_sum<Ranks> sum{reinterpret_cast<const f32x4*>(in),
                                reinterpret_cast<f32x4*>(out),
                                scratch,
                                stride,
                                group.rank,
                                ranks};
    std::uint32_t at = thread;
    for (; at + 3 * threads < vectors; at += 4 * threads) sum.template store<4>(m, at, threads);
    for (; at < vectors; at += threads) sum.template store<1>(m, at, threads);
    done = vectors * 4;
  }
  for (std::uint32_t i = done + thread; i < length; i += threads) {
    float sum = 0;
    const std::byte* from = scratch + i * sizeof(float);
    for (std::uint32_t r = 0; r < ranks; ++r) {
      float part = 0;
      if (r == group.rank) {
        part = in[i];
      } else {
        part = m.load_scratch(reinterpret_cast<const float*>(from));
        from += stride;
      }
      sum = r == 0 ? part : sum + part;
    }
    out[i] = sum;
  }
}

template <std::uint32_t Ranks, class M>
CHORALE_HOST_DEVICE bool reduce_stripe(M& m, operation<M>& op, const all_reduce_args& args,
                                       const cta_role& role, std::uint32_t stripe, std::uint64_t sequence) {
  const group_view& group = args.group;
  const cta_role all_reducers{5, 0, 2 * role.threads};
  if (m.sync_or(all_reducers, !op.check_signatures())) return false;
  for (stripe_walk walk{args, stripe, sequence}; walk.more(); walk.step()) {
    bool ok = true;
    if (m.thread() == role.first) ok = await_chunk(m, op, args, stripe, walk.sequence());
    if (m.sync_or(role, !ok)) return false;
    reduce_chunk<Ranks>(m, args, role, walk, stripe);
    m.sync(role);
    if (m.thread() != role.first) continue;
    // The barrier came after the last loaded value was used: there is nothing left to order.
    for (std::uint32_t r = 0; r < group.size; ++r)
      if (r != group.rank)
        m.store_relaxed_system(credit_word(group, r, group.rank, stripe), walk.sequence() + 1);
  }
  return true;
}

template <std::uint32_t Ranks, class M>
CHORALE_HOST_DEVICE void all_reduce_ring(M& m, const all_reduce_args& args) {
  operation<M> op{m, args};
  const std::uint32_t per_half = m.threads() / 2;
  const std::uint32_t half = m.thread() / per_half;
  const std::uint32_t stripe = 2 * m.cta() + half;
  const bool bulk = M::has_bulk_copies && args.alignment == 16;
  // roles consist of whole warps: a barrier counts warps
  const std::uint32_t pushing = bulk ? 32 : per_half < 64 ? per_half / 2 : per_half / 64 * 32;
  const cta_role pushers{1 + half, half * per_half, pushing};
  const cta_role reducers{3 + half, pushers.first + pushing, per_half - pushing};
  std::uint64_t& kept = args.group.block->ring_sequence[stripe];
  const std::uint64_t sequence = kept;
  bool ok = op.begin();
  if (ok) {
    op.send_signature();
    if (m.thread() >= reducers.first)
      ok = reduce_stripe<Ranks>(m, op, args, reducers, stripe, sequence);
    else if (bulk)
      ok = m.push_stripe_in_bulk(op, args, pushers, stripe, sequence);
    else
      ok = push_stripe(m, op, args, pushers, stripe, sequence);
  }
  if (m.thread() == pushers.first)
    kept = sequence + chunks_of_stripe(chunks_of(args.count, args.chunk), stripe, args.stripes);
  op.end(ok);
}

}  // namespace chorale::kernels
