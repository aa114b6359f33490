// Ring exchange: push chunks into the peers' scratch, copy or fold them there, all in one kernel.
//
// A CTA is two halves, each with a stripe of every extent and two roles that run side by side:
//   pushers   wait for a credit from a peer, copy the next chunk for it from the user's input into its slot,
//             then raise the stripe's flag there; peers take turns, chunk by chunk
//   reducers  wait for flags, copy a peer's chunk to the user's output, or fold all peers' chunks and the own
//             input in rank order, then give the credits back; before their first store, the reducers of both
//             halves meet to admit the operation
// With bulk copies one thread pushes, and a warp is all that role takes. Two halves, because raising a flag
// drains a pusher: meanwhile the other one keeps the link busy. User buffers are touched by their owner only.
// Folding in place, reducers also wait until the local pushers have read the chunk. Sequence numbers per
// edge, direction and stripe run through all operations and live in the device block.
//
// Folding and then gathering (all_reduce of three and more ranks): the second part pushes the fold's chunks
// on, each once the reducers of the same half have stored it, and copies those of the peers. What a peer
// gathers here was made of what this rank pushed of it, so its input has been read.
#pragma once

#include <chorale/kernels/exchange_packets.hpp>

namespace chorale::kernels {

/// Threads of a CTA that work and meet together.
struct cta_role {
  std::uint32_t id;     ///< of its barrier
  std::uint32_t first;  ///< thread
  std::uint32_t threads;
  std::uint32_t half;
  std::uint32_t stripe;
};

struct ring_extent {
  std::byte* data;
  std::uint64_t bytes;
  std::uint32_t chunk;
};
/// What goes to `peer` in a part of the operation, 0 or 1.
CHORALE_HOST_DEVICE inline ring_extent leaving(const exchange_args& args, std::uint32_t part,
                                               std::uint32_t peer) {
  const std::uint32_t own = args.group.rank;
  if (part != 0)
    return {args.edges[own].receive, args.edges[own].receive_bytes, args.edges[own].receive_chunk};
  return {const_cast<std::byte*>(args.edges[peer].send), args.edges[peer].send_bytes,
          args.edges[peer].send_chunk};
}
/// What comes from it. While folding, every peer sends its contribution to the own output.
CHORALE_HOST_DEVICE inline ring_extent arriving(const exchange_args& args, std::uint32_t part,
                                                std::uint32_t peer) {
  const std::uint32_t r = args.folds != 0 && part == 0 ? args.group.rank : peer;
  return {args.edges[r].receive, args.edges[r].receive_bytes, args.edges[r].receive_chunk};
}

CHORALE_HOST_DEVICE inline std::uint32_t slot_of(const exchange_args& args, std::uint64_t sequence) {
  return static_cast<std::uint32_t>(sequence % args.group.layout.slots);
}
CHORALE_HOST_DEVICE inline std::uint64_t visits(const exchange_args& args, const ring_extent& e,
                                                std::uint32_t stripe) {
  return e.bytes == 0 ? 0 : chunks_of_stripe(chunks_of(e.bytes, e.chunk), stripe, args.stripes);
}

/// The chunks of a stripe in the order in which they are pushed, or copied: visit by visit, peer by peer.
template <bool Arriving>
class chunk_walk {
 public:
  /// The parts [part, end) of the operation. Copying, arrivals begin with the own part.
  CHORALE_HOST_DEVICE chunk_walk(const exchange_args& args, const cta_shared& shared, const cta_role& role,
                                 std::uint32_t part, std::uint32_t end)
      : args_{args}, shared_{shared}, role_{role}, part_{part}, end_{end} {
    step_ = first_step();
    settle();
  }
  [[nodiscard]] CHORALE_HOST_DEVICE bool more() const { return part_ < end_; }
  CHORALE_HOST_DEVICE void step() {
    ++step_;
    settle();
  }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t part() const { return part_; }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t peer() const { return peer_; }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t visit() const { return visit_; }
  [[nodiscard]] CHORALE_HOST_DEVICE bool is_last_of_visit() const { return step_ + 1 == args_.group.size; }
  // Calculated when asked for: three of these walk in one thread, and registers are few.
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint64_t sequence() const {
    const std::uint32_t edge = source_slot(args_.group.rank, peer_);
    return (Arriving ? shared_.received : shared_.sent)[role_.half][part_][edge] + visit_;
  }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t slot() const { return slot_of(args_, sequence()); }
  [[nodiscard]] CHORALE_HOST_DEVICE std::byte* data() const {
    const ring_extent e = extent();
    return e.data + begin(e);
  }
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t bytes() const { return bytes_; }

 private:
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint32_t first_step() const {
    return Arriving && args_.folds == 0 ? 0 : 1;
  }
  CHORALE_HOST_DEVICE void settle() {
    const group_view& group = args_.group;
    for (; part_ < end_;) {
      if (step_ < group.size) {
        peer_ = rank_after(group, Arriving ? group.size - step_ : step_);
        if ((step_ == 0 || has(args_.by_ring, peer_)) && take_chunk()) return;
        ++step_;
      } else if (found_) {
        ++visit_;
        step_ = first_step();
        found_ = false;
      } else {
        ++part_;
        visit_ = 0;
        step_ = first_step();
      }
    }
  }
  CHORALE_HOST_DEVICE ring_extent extent() const {
    return Arriving ? arriving(args_, part_, peer_) : leaving(args_, part_, peer_);
  }
  CHORALE_HOST_DEVICE std::uint64_t begin(const ring_extent& e) const {
    return (static_cast<std::uint64_t>(visit_) * args_.stripes + role_.stripe) * e.chunk;
  }
  CHORALE_HOST_DEVICE bool take_chunk() {
    const ring_extent e = extent();
    const std::uint64_t at = begin(e);
    if (at >= e.bytes) return false;
    found_ = true;
    bytes_ = e.bytes - at < e.chunk ? static_cast<std::uint32_t>(e.bytes - at) : e.chunk;
    return true;
  }

  const exchange_args& args_;
  const cta_shared& shared_;
  const cta_role& role_;
  std::uint32_t part_;
  std::uint32_t end_;
  std::uint32_t step_ = 0;
  std::uint32_t peer_ = 0;
  std::uint32_t visit_ = 0;
  std::uint32_t bytes_ = 0;
  bool found_ = false;
};

// Nothing here releases or fences while bulk stores are under way: a fence waits for all stores of the SM,
// those of the next chunks included, and with many CTAs the link then idles for most of the time. Waiting
// threads look with relaxed loads and acquire once, when it is there.

/// Whether `peer` has room for `sequence` on `stripe`.
template <class M>
CHORALE_HOST_DEVICE bool has_room(const M& m, const exchange_args& args, std::uint32_t peer,
                                  std::uint32_t stripe, std::uint64_t sequence) {
  return has_credit(sequence, m.load_system(credit_word(args, args.group.rank, peer, stripe)),
                    args.group.layout.slots);
}
/// By one thread: until it has.
template <class M>
CHORALE_HOST_DEVICE bool await_room(M& m, operation<M>& op, const exchange_args& args, std::uint32_t peer,
                                    std::uint32_t stripe, std::uint64_t sequence) {
  if (!op.wait([&] { return has_room(m, args, peer, stripe, sequence); })) return false;
  m.load_acquire_system(credit_word(args, args.group.rank, peer, stripe));
  return true;
}
/// By one thread, once a chunk is at its peer: it may be consumed there and, in place, overwritten here.
template <class M, class Walk>
CHORALE_HOST_DEVICE void publish(M& m, const exchange_args& args, const cta_role& role, const Walk& chunk) {
  m.store_relaxed_system(flag_word(args, chunk.peer(), args.group.rank, role.stripe), chunk.sequence() + 1);
  if (args.in_place != 0 && chunk.is_last_of_visit())
    m.store_release_cta(&m.shared().pushed[role.half], chunk.visit() + 1);
}
/// Whether what is to be pushed is there: the second part sends what the first has folded.
template <class M, class Walk>
CHORALE_HOST_DEVICE bool is_made(M& m, const cta_role& role, const Walk& chunk) {
  return chunk.part() == 0 || m.load_acquire_cta(&m.shared().reduced[role.half]) > chunk.visit();
}

CHORALE_HOST_DEVICE inline std::uint32_t parts_of(const exchange_args& args) {
  return args.gathers != 0 ? 2 : 1;
}

/// Plain-store pusher, for any alignment. A machine with bulk copies replaces it for aligned buffers.
template <class M>
CHORALE_HOST_DEVICE bool push_stripe(M& m, operation<M>& op, const exchange_args& args,
                                     const cta_role& role) {
  const std::uint32_t thread = m.thread() - role.first;
  for (chunk_walk<false> walk{args, m.shared(), role, 0, parts_of(args)}; walk.more(); walk.step()) {
    bool ok = true;
    if (thread == 0)
      ok = op.wait([&] { return is_made(m, role, walk); }) &&
           await_room(m, op, args, walk.peer(), role.stripe, walk.sequence());
    if (m.sync_or(role, !ok)) return false;
    m.copy(ring_slot(args, walk.peer(), args.group.rank, role.stripe, walk.slot()), walk.data(), walk.bytes(),
           thread, role.threads);
    m.sync(role);
    if (thread == 0) {
      m.fence_system();
      publish(m, args, role, walk);
    }
  }
  return true;
}

/// By one thread: until a peer's chunk `sequence` lies here.
template <class M>
CHORALE_HOST_DEVICE bool await_chunk(M& m, operation<M>& op, const exchange_args& args, std::uint32_t peer,
                                     std::uint32_t stripe, std::uint64_t sequence) {
  const std::uint64_t* word = flag_word(args, args.group.rank, peer, stripe);
  if (!op.wait([&] { return m.load_system(word) > sequence; })) return false;
  m.load_acquire_system(word);
  return true;
}
/// By one thread, after a barrier that came after the last loaded value was used: nothing is left to order.
template <class M>
CHORALE_HOST_DEVICE void give_credit(M& m, const exchange_args& args, std::uint32_t peer,
                                     std::uint32_t stripe, std::uint64_t sequence) {
  m.store_relaxed_system(credit_word(args, peer, args.group.rank, stripe), sequence + 1);
}

/// Folds of `Bytes` of all ranks' chunks, in rank order.
template <std::uint32_t Bytes, class Fold>
struct chunk_fold {
  static constexpr std::uint32_t count = Bytes / sizeof(typename Fold::code);
  static constexpr std::uint32_t words = Fold::template words<count>;
  const Fold& fold;
  const std::byte* const* sources;  ///< by rank
  std::byte* out;
  std::uint32_t rank, ranks;

  /// Those at `at`, `at + step`, ...: `Ahead` of them, so that their loads are under way together.
  template <std::uint32_t Ahead, class M>
  CHORALE_HOST_DEVICE void store(M& m, std::uint32_t at, std::uint32_t step) const {
    typename Fold::template accumulator<count> sum[Ahead];
    CHORALE_UNROLL
    for (std::uint32_t r = 0; r < (M::ranks != 0 ? M::ranks : ranks); ++r) {
      const std::byte* from = sources[r];
      std::uint64_t part[Ahead][words];
      CHORALE_UNROLL
      for (std::uint32_t k = 0; k < Ahead; ++k)
        m.template load<Bytes>(part[k], from + static_cast<std::uint64_t>(at + k * step) * Bytes, r != rank);
      CHORALE_UNROLL
      for (std::uint32_t k = 0; k < Ahead; ++k)
        if (r == 0)
          fold.template begin<count>(sum[k], part[k], r);
        else
          fold.template add<count>(sum[k], part[k], r);
    }
    CHORALE_UNROLL
    for (std::uint32_t k = 0; k < Ahead; ++k) {
      std::uint64_t made[words];
      fold.template finish<count>(sum[k], made);
      m.template store<Bytes>(out + static_cast<std::uint64_t>(at + k * step) * Bytes, made);
    }
  }
};

/// Folds a chunk whose sources are in shared memory; each thread has several vectors under way so that loads
/// overlap.
template <class Fold, class M>
CHORALE_HOST_DEVICE void fold_chunk(M& m, const exchange_args& args, const Fold& fold, const cta_role& role,
                                    std::byte* out, std::uint32_t bytes) {
  // A known number of ranks needs no registers for choices: small elements then look as far ahead as others.
  constexpr std::uint32_t ahead =
      M::ranks != 0 || sizeof(typename Fold::code) >= 4 ? 4 : sizeof(typename Fold::code);
  const group_view& group = args.group;
  const std::byte* const* sources = m.shared().sources[role.half];
  const std::uint32_t threads = role.threads;
  const std::uint32_t thread = m.thread() - role.first;
  std::uint32_t done = 0;
  if (args.alignment == sizeof(vector16)) {
    const chunk_fold<sizeof(vector16), Fold> vectors{fold, sources, out, group.rank, group.size};
    const std::uint32_t n = bytes / sizeof(vector16);
    std::uint32_t at = thread;
    for (; at + (ahead - 1) * threads < n; at += ahead * threads)
      vectors.template store<ahead>(m, at, threads);
    for (; at < n; at += threads) vectors.template store<1>(m, at, threads);
    done = n * sizeof(vector16);
  }
  constexpr std::uint32_t size = sizeof(typename Fold::code);
  const chunk_fold<size, Fold> elements{fold, sources, out, group.rank, group.size};
  for (std::uint32_t at = done / size + thread; at < bytes / size; at += threads)
    elements.template store<1>(m, at, threads);
}

template <class Fold, class M>
CHORALE_HOST_DEVICE bool fold_stripe(M& m, operation<M>& op, const exchange_args& args,
                                     const cta_role& role) {
  const group_view& group = args.group;
  const std::uint32_t own = group.rank;
  cta_shared& shared = m.shared();
  const Fold fold = make_fold<Fold>(m, args);
  const ring_extent e = arriving(args, 0, own);
  const std::uint64_t stride = static_cast<std::uint64_t>(args.stripes) * e.chunk;
  std::uint32_t visit = 0;
  for (std::uint64_t begin = static_cast<std::uint64_t>(role.stripe) * e.chunk; begin < e.bytes;
       begin += stride, ++visit) {
    bool ok = true;
    if (m.thread() == role.first) {
      for (std::uint32_t r = 0; ok && r < group.size; ++r) {
        if (r == own) {
          shared.sources[role.half][r] = args.edges[r].send + begin;
          continue;
        }
        const std::uint64_t sequence = shared.received[role.half][0][op.edge_to(r)] + visit;
        ok = await_chunk(m, op, args, r, role.stripe, sequence);
        shared.sources[role.half][r] = ring_slot(args, own, r, role.stripe, slot_of(args, sequence));
      }
      const std::uint32_t* pushed = &shared.pushed[role.half];
      if (ok && args.in_place != 0) ok = op.wait([&] { return m.load_acquire_cta(pushed) > visit; });
    }
    if (m.sync_or(role, !ok)) return false;
    const std::uint32_t bytes =
        e.bytes - begin < e.chunk ? static_cast<std::uint32_t>(e.bytes - begin) : e.chunk;
    fold_chunk(m, args, fold, role, e.data + begin, bytes);
    if (args.gathers != 0) m.order_bulk_accesses();  // the bulk pusher reads what was stored
    m.sync(role);
    if (m.thread() != role.first) continue;
    for (std::uint32_t r = 0; r < group.size; ++r)
      if (r != own)
        give_credit(m, args, r, role.stripe, shared.received[role.half][0][op.edge_to(r)] + visit);
    if (args.gathers != 0) m.store_release_cta(&shared.reduced[role.half], visit + 1);
  }
  return true;
}

/// The parts from `part` on.
template <class M>
CHORALE_HOST_DEVICE bool copy_stripe(M& m, operation<M>& op, const exchange_args& args, const cta_role& role,
                                     std::uint32_t part) {
  const group_view& group = args.group;
  const std::uint32_t thread = m.thread() - role.first;
  for (chunk_walk<true> walk{args, m.shared(), role, part, parts_of(args)}; walk.more(); walk.step()) {
    if (walk.peer() == group.rank) {
      if (args.edges[group.rank].send != args.edges[group.rank].receive)
        m.copy(walk.data(), args.edges[group.rank].send + (walk.data() - args.edges[group.rank].receive),
               walk.bytes(), thread, role.threads);
      continue;
    }
    bool ok = true;
    if (thread == 0) ok = await_chunk(m, op, args, walk.peer(), role.stripe, walk.sequence());
    if (m.sync_or(role, !ok)) return false;
    m.copy_arrived(walk.data(), ring_slot(args, group.rank, walk.peer(), role.stripe, walk.slot()),
                   walk.bytes(), thread, role.threads);
    m.sync(role);
    if (thread == 0) give_credit(m, args, walk.peer(), role.stripe, walk.sequence());
  }
  return true;
}

template <class Fold, class M>
CHORALE_HOST_DEVICE bool reduce_stripe(M& m, operation<M>& op, const exchange_args& args,
                                       const cta_role& role) {
  const cta_role all_reducers{5, 0, 2 * role.threads, 0, 0};
  if (m.sync_or(all_reducers, !op.check_signatures())) return false;
  if constexpr (Fold::folds) {
    if (!fold_stripe<Fold>(m, op, args, role)) return false;
    return args.gathers == 0 || copy_stripe(m, op, args, role, 1);
  } else {
    return copy_stripe(m, op, args, role, 0);
  }
}

/// Sequence numbers of a stripe, from the device block and back. Threads of the half share the edges.
template <class M>
CHORALE_HOST_DEVICE void load_sequences(M& m, const exchange_args& args, const cta_role& role,
                                        std::uint32_t threads) {
  const group_view& group = args.group;
  cta_shared& shared = m.shared();
  for (std::uint32_t edge = m.thread() - role.first; edge + 1 < group.size; edge += threads) {
    const std::uint32_t peer = edge < group.rank ? edge : edge + 1;
    const bool used = has(args.by_ring, peer);
    const std::uint64_t sent = group.block->ring_sent[role.stripe][edge];
    const std::uint64_t received = group.block->ring_received[role.stripe][edge];
    shared.sent[role.half][0][edge] = sent;
    shared.received[role.half][0][edge] = received;
    shared.sent[role.half][1][edge] = sent + (used ? visits(args, leaving(args, 0, peer), role.stripe) : 0);
    shared.received[role.half][1][edge] =
        received + (used ? visits(args, arriving(args, 0, peer), role.stripe) : 0);
  }
}
template <class M>
CHORALE_HOST_DEVICE void store_sequences(M& m, const exchange_args& args, const cta_role& role,
                                         std::uint32_t threads) {
  const group_view& group = args.group;
  const cta_shared& shared = m.shared();
  for (std::uint32_t edge = m.thread() - role.first; edge + 1 < group.size; edge += threads) {
    const std::uint32_t peer = edge < group.rank ? edge : edge + 1;
    const bool gathers = has(args.by_ring, peer) && args.gathers != 0;
    group.block->ring_sent[role.stripe][edge] =
        shared.sent[role.half][1][edge] + (gathers ? visits(args, leaving(args, 1, peer), role.stripe) : 0);
    group.block->ring_received[role.stripe][edge] =
        shared.received[role.half][1][edge] +
        (gathers ? visits(args, arriving(args, 1, peer), role.stripe) : 0);
  }
}

/// A ring's thread: which half it belongs to and what it does there.
template <class Fold, class M>
class ring_exchange {
 public:
  CHORALE_HOST_DEVICE ring_exchange(M& m, operation<M>& op, const exchange_args& args)
      : m_{m}, op_{op}, args_{args}, per_half_{m.threads() / 2} {
    const std::uint32_t half = m.thread() / per_half_;
    const std::uint32_t stripe = 2 * m.cta() + half;
    bulk_ = M::has_bulk_copies && args.bulk != 0;
    // roles consist of whole warps: a barrier counts warps
    const std::uint32_t pushing = bulk_ ? 32 : per_half_ < 64 ? per_half_ / 2 : per_half_ / 64 * 32;
    pushers_ = {1 + half, half * per_half_, pushing, half, stripe};
    reducers_ = {3 + half, pushers_.first + pushing, per_half_ - pushing, half, stripe};
  }
  /// Before begin(), whose barrier all threads pass.
  CHORALE_HOST_DEVICE void prepare() { load_sequences(m_, args_, pushers_, per_half_); }
  /// After the signatures were sent.
  CHORALE_HOST_DEVICE bool run() {
    if (m_.thread() >= reducers_.first) return reduce_stripe<Fold>(m_, op_, args_, reducers_);
    if (bulk_) return M::push_stripe_in_bulk(m_, op_, args_, pushers_);
    return push_stripe(m_, op_, args_, pushers_);
  }
  /// Before end().
  CHORALE_HOST_DEVICE void keep() { store_sequences(m_, args_, pushers_, per_half_); }

 private:
  M& m_;
  operation<M>& op_;
  const exchange_args& args_;
  std::uint32_t per_half_;
  bool bulk_ = false;
  cta_role pushers_{};
  cta_role reducers_{};
};

template <class Fold, class M>
CHORALE_HOST_DEVICE void exchange_ring(M& m, const exchange_args& args) {
  operation<M> op{m, args};
  ring_exchange<Fold, M> ring{m, op, args};
  ring.prepare();
  bool ok = op.begin();
  if (ok) {
    op.send_signature();
    ok = ring.run();
  }
  ring.keep();
  op.end(ok);
}

}  // namespace chorale::kernels
