// Ring all-reduce: push chunks into the peers' scratch, reduce locally, all in one kernel.
//
// The first half of the CTAs push, one per stripe; the others reduce, one per stripe. For each chunk
//   pusher    waits for a credit from every peer, copies the chunk from the user's input into the peers'
//             slots, then raises the stripe's flag there
//   reducer   waits for every peer's flag, adds the chunks to its own input in rank order, stores the sum to
//             the user's output, then gives the credits back
// Pushers compare signatures too: a peer with a smaller grid has CTA 0, so somebody always finds a mismatch.
// User buffers are touched by their owner only. In place, the reducer also waits until the local pusher has
// read the chunk. Sequence numbers per stripe run through all operations and live in the device block.
#pragma once

#include <chorale/kernels/all_reduce_packets.hpp>

namespace chorale::kernels {

struct alignas(16) f32x4 {
  float v[4];
};
CHORALE_HOST_DEVICE inline f32x4 add(const f32x4& a, const f32x4& b) {
  return {{a.v[0] + b.v[0], a.v[1] + b.v[1], a.v[2] + b.v[2], a.v[3] + b.v[3]}};
}

/// A stripe's position in the message: chunk `k`, its sequence number and its extent.
class stripe_walk {
 public:
  CHORALE_HOST_DEVICE stripe_walk(const all_reduce_args& args, std::uint32_t stripe)
      : args_{args}, at_{stripe}, sequence_{args.block->ring_sequence[stripe]} {}
  [[nodiscard]] CHORALE_HOST_DEVICE bool more() const { return at_ * args_.chunk < args_.count; }
  CHORALE_HOST_DEVICE void step() {
    at_ += args_.stripes;
    ++sequence_;
  }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint64_t sequence() const { return sequence_; }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint64_t begin() const { return at_ * args_.chunk; }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t length() const {
    const std::uint64_t rest = args_.count - begin();
    return rest < args_.chunk ? static_cast<std::uint32_t>(rest) : args_.chunk;
  }

 private:
  const all_reduce_args& args_;
  std::uint64_t at_;
  std::uint64_t sequence_;
};

/// By one thread: until every peer has room for `sequence` on `stripe`.
template <class M>
CHORALE_HOST_DEVICE bool await_credits(M& m, operation<M>& op, const device_block& block,
                                       std::uint32_t stripe, std::uint64_t sequence) {
  for (std::uint32_t r = 0; r < block.size; ++r) {
    if (r == block.rank) continue;
    const std::uint64_t* word = credit_word(block, block.rank, r, stripe);
    if (!op.wait([&] { return has_credit(sequence, m.load_acquire_system(word), block.layout.slots); }))
      return false;
  }
  return true;
}
/// By one thread, after the data is ordered before it: chunks below `delivered` may be consumed.
template <class M>
CHORALE_HOST_DEVICE void raise_flags(M& m, const all_reduce_args& args, std::uint32_t stripe,
                                     std::uint64_t delivered) {
  device_block& block = *args.block;
  for (std::uint32_t r = 0; r < block.size; ++r)
    if (r != block.rank) m.store_release_system(flag_word(block, r, block.rank, stripe), delivered);
  if (args.in_place != 0) m.store_release_device(&block.ring_pushed[stripe].value, delivered);
}

/// Plain-store pusher, for any alignment. A machine with bulk copies replaces it for aligned buffers.
template <class M>
CHORALE_HOST_DEVICE bool push_stripe(M& m, operation<M>& op, const all_reduce_args& args,
                                     std::uint32_t stripe) {
  const device_block& block = *args.block;
  bool ok = op.check_signatures();
  for (stripe_walk walk{args, stripe}; walk.more(); walk.step()) {
    if (ok && m.thread() == 0) ok = await_credits(m, op, block, stripe, walk.sequence());
    if (m.sync_or(!ok)) return false;
    for (std::uint32_t r = 0; r < block.size; ++r) {
      if (r == block.rank) continue;
      auto* to = reinterpret_cast<float*>(ring_slot(block, r, block.rank, stripe, walk.sequence()));
      m.copy(to, args.in + walk.begin(), walk.length(), args.alignment == 16);
    }
    m.sync();
    if (m.thread() == 0) {
      m.fence_system();
      raise_flags(m, args, stripe, walk.sequence() + 1);
    }
  }
  return ok;
}

/// By one thread: until every peer's chunk lies here and, in place, the own one has been read.
template <class M>
CHORALE_HOST_DEVICE bool await_chunk(M& m, operation<M>& op, const all_reduce_args& args,
                                     std::uint32_t stripe, std::uint64_t sequence) {
  const device_block& block = *args.block;
  for (std::uint32_t r = 0; r < block.size; ++r) {
    if (r == block.rank) continue;
    const std::uint64_t* word = flag_word(block, block.rank, r, stripe);
    if (!op.wait([&] { return m.load_acquire_system(word) > sequence; })) return false;
  }
  const std::uint64_t* pushed = &block.ring_pushed[stripe].value;
  return args.in_place == 0 || op.wait([&] { return m.load_acquire_device(pushed) > sequence; });
}

/// Sums a chunk in rank order into the output; each thread has several vectors under way so that loads
/// overlap.
template <std::uint32_t Ranks, class M>
CHORALE_HOST_DEVICE void reduce_chunk(M& m, const all_reduce_args& args, const stripe_walk& walk,
                                      std::uint32_t stripe) {
  constexpr std::uint32_t ahead = 4;
  const device_block& block = *args.block;
  const std::uint32_t ranks = Ranks != 0 ? Ranks : block.size;
  const float* in = args.in + walk.begin();
  float* out = args.out + walk.begin();
  std::uint32_t done = 0;
  if (args.alignment == 16) {
    const std::uint32_t vectors = walk.length() / 4;
    const std::uint32_t rounds = vectors / (ahead * m.threads());
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const std::uint32_t base = round * ahead * m.threads() + m.thread();
      f32x4 sum[ahead];
      f32x4 part[ahead];
      CHORALE_UNROLL
      for (std::uint32_t r = 0; r < ranks; ++r) {
        const auto* scratch = reinterpret_cast<const f32x4*>(
            ring_slot(block, block.rank, r == block.rank ? (r == 0 ? 1 : 0) : r, stripe, walk.sequence()));
        CHORALE_UNROLL
        for (std::uint32_t k = 0; k < ahead; ++k) {
          const std::uint32_t at = base + k * m.threads();
          part[k] = r == block.rank ? reinterpret_cast<const f32x4*>(in)[at] : m.load_scratch(scratch + at);
        }
        CHORALE_UNROLL
        for (std::uint32_t k = 0; k < ahead; ++k) sum[k] = r == 0 ? part[k] : add(sum[k], part[k]);
      }
      CHORALE_UNROLL
      for (std::uint32_t k = 0; k < ahead; ++k)
        reinterpret_cast<f32x4*>(out)[base + k * m.threads()] = sum[k];
    }
    done = rounds * ahead * m.threads() * 4;
  }
  for (std::uint32_t i = done + m.thread(); i < walk.length(); i += m.threads()) {
    float sum = 0;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const float part = r == block.rank
                             ? in[i]
                             : m.load_scratch(reinterpret_cast<const float*>(
                                                  ring_slot(block, block.rank, r, stripe, walk.sequence())) +
                                              i);
      sum = r == 0 ? part : sum + part;
    }
    out[i] = sum;
  }
}

template <std::uint32_t Ranks, class M>
CHORALE_HOST_DEVICE bool reduce_stripe(M& m, operation<M>& op, const all_reduce_args& args,
                                       std::uint32_t stripe) {
  const device_block& block = *args.block;
  bool ok = op.check_signatures();
  for (stripe_walk walk{args, stripe}; walk.more(); walk.step()) {
    if (ok && m.thread() == 0) ok = await_chunk(m, op, args, stripe, walk.sequence());
    if (m.sync_or(!ok)) return false;  // the first time it admits the operation as well
    reduce_chunk<Ranks>(m, args, walk, stripe);
    m.sync();
    if (m.thread() != 0) continue;
    for (std::uint32_t r = 0; r < block.size; ++r)
      if (r != block.rank)
        m.store_release_system(credit_word(block, r, block.rank, stripe), walk.sequence() + 1);
  }
  return ok;
}

template <std::uint32_t Ranks, class M>
CHORALE_HOST_DEVICE void all_reduce_ring(M& m, const all_reduce_args& args) {
  operation<M> op{m, args};
  bool ok = op.begin();
  if (ok) {
    op.send_signature();
    if (m.cta() >= args.stripes)
      ok = reduce_stripe<Ranks>(m, op, args, m.cta() - args.stripes);
    else if (M::has_bulk_copies && args.alignment == 16)
      ok = m.push_stripe_in_bulk(op, args, m.cta());
    else
      ok = push_stripe(m, op, args, m.cta());
  }
  op.end(ok);
}

}  // namespace chorale::kernels
