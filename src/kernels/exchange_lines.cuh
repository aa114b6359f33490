// LL128 exchange: push of 128-byte lines, fifteen words of data and the counter in the last.
//
// A quarter warp stores a line with eight 16-byte accesses of one instruction. That the line arrives as a
// whole is how the hardware behaves, not something PTX promises: the path is used only on sm_90 over NVLink
// and only after the creation-time proof passed (device_group.hpp). No fence, no credits: room for a whole
// extent per edge and parity. Line i of an extent lies at place i, whatever the grid. In place is safe: a
// lane keeps in registers what it pushed, and stores only what it loaded before.
//
// Folding and then gathering (three and more ranks): the fold's share is pushed on by the lanes that folded
// it, into the second part of the slots. What arrives there for a line was made of what this rank pushed of
// it, so its input has been read.
#pragma once

#include <chorale/kernels/exchange_packets.hpp>
#include <chorale/kernels/gpu_machine.cuh>

namespace chorale::kernels {

struct line_part {
  std::uint64_t w[2];  ///< two words of a line; lane 7's second is the flag
};

struct line_extent {
  std::byte* data;
  std::uint64_t bytes;
  std::uint32_t lines;
};

/// A warp's `Ahead` groups of four lines from `base` on, and this lane's share of them.
template <std::uint32_t Ahead, class M>
class line_group {
 public:
  using parts = line_part[Ahead];
  __device__ line_group(M& m, operation<M>& op, const exchange_args& args, std::uint32_t base,
                        std::uint32_t slots_from)
      : m_{m}, op_{op}, args_{args}, base_{base}, slots_from_{slots_from} {}

  /// Whether every word of the lines exists in an extent and is aligned, so that nothing needs checking and
  /// loads go out together.
  __device__ bool is_whole(const line_extent& e) const {
    const std::uint32_t end = base_ + lines_per_warp * Ahead;
    return args_.alignment >= word_bytes &&
           (end < e.lines || (end == e.lines && e.bytes == std::uint64_t{end} * line_words * word_bytes));
  }
  template <bool Whole>
  __device__ void load(parts& p, const line_extent& from) const {
#pragma unroll
    for (std::uint32_t u = 0; u < Ahead; ++u) {
      const std::uint64_t word = word_of_lane(line(u), lane());
      p[u].w[0] = load_word_of<Whole>(from, word);
      p[u].w[1] = lane() == 7 ? 0 : load_word_of<Whole>(from, word + 1);
    }
  }
  template <bool Whole>
  __device__ void store(const parts& p, const line_extent& to) const {
#pragma unroll
    for (std::uint32_t u = 0; u < Ahead; ++u) {
      const std::uint64_t word = word_of_lane(line(u), lane());
      store_word_of<Whole>(to, word, p[u].w[0]);
      if (lane() != 7) store_word_of<Whole>(to, word + 1, p[u].w[1]);
    }
  }
  template <bool Whole>
  __device__ void push(const parts& p, std::uint32_t peer, std::uint32_t lines) const {
    packet* slots = mine(line_slots(args_, peer, op_.own(), op_.parity(peer)));
    const std::uint64_t counter = op_.counter(peer);
#pragma unroll
    for (std::uint32_t u = 0; u < Ahead; ++u)
      if (Whole || line(u) < lines)
        m_.store_packet(slots + u * packets_per_step, {p[u].w[0], lane() == 7 ? counter : p[u].w[1]});
  }
  /// The warp reads until every line carries the counter. All lanes leave together; false when stopped.
  template <bool Whole>
  __device__ bool receive(parts& p, std::uint32_t peer, std::uint32_t lines) const {
    const packet* slots = mine(line_slots(args_, op_.own(), peer, op_.parity(peer)));
    const std::uint64_t counter = op_.counter(peer);
    const auto arrived = [&] {
      bool missing = false;
#pragma unroll
      for (std::uint32_t u = 0; u < Ahead; ++u) {
        packet q{0, counter};
        if (Whole || line(u) < lines) q = m_.load_packet(slots + u * packets_per_step);
        p[u] = {{q.low, q.high}};
      }
#pragma unroll
      for (std::uint32_t u = 0; u < Ahead; ++u) missing |= lane() == 7 && p[u].w[1] != counter;
      return !m_.any_lane(missing);
    };
    return op_.wait_together(arrived);
  }

 private:
  static constexpr std::uint32_t packets_per_step = lines_per_warp * line_bytes / sizeof(packet);

  __device__ static std::uint32_t lane() { return threadIdx.x & 7; }
  __device__ std::uint32_t line(std::uint32_t u) const {
    return base_ + u * lines_per_warp + ((threadIdx.x & 31) >> 3);
  }
  /// This lane's place in the first of the lines; the next lies `packets_per_step` further.
  __device__ packet* mine(std::uint64_t* slots) const {
    return reinterpret_cast<packet*>(slots + std::uint64_t{slots_from_ + line(0)} * (line_bytes / 8)) +
           lane();
  }
  template <bool Whole>
  __device__ std::uint64_t load_word_of(const line_extent& from, std::uint64_t i) const {
    if constexpr (Whole) return reinterpret_cast<const std::uint64_t*>(from.data)[i];
    return i * word_bytes < from.bytes ? load_word(from.data, from.bytes, i, args_.alignment) : 0;
  }
  template <bool Whole>
  __device__ void store_word_of(const line_extent& to, std::uint64_t i, std::uint64_t word) const {
    if constexpr (Whole)
      reinterpret_cast<std::uint64_t*>(to.data)[i] = word;
    else if (i * word_bytes < to.bytes)
      store_word(to.data, to.bytes, i, args_.alignment, word);
  }
  M& m_;
  operation<M>& op_;
  const exchange_args& args_;
  std::uint32_t base_;
  std::uint32_t slots_from_;
};

/// What one thread does of an operation by lines. The last warp sees to signatures, the others to lines.
template <std::uint32_t Ahead, class Fold, class M>
class line_exchange {
 public:
  __device__ line_exchange(M& m, operation<M>& op, const exchange_args& args)
      : m_{m}, op_{op}, args_{args}, group_{args.group}, fold_{make_fold<Fold>(m, args)} {}

  __device__ bool run() {
    const bool checks = warp() == workers();
    if constexpr (Fold::folds) {
      if (fold_.scales() && !meet(op_.check_signatures())) return false;  // scalars come with the signatures
      if (checks) return meet(fold_.scales() || op_.check_signatures());
      if (!fold()) return false;
      return args_.gathers == 0 || copy(true);
    } else {
      if (checks) return meet(op_.check_signatures());
      return copy(false);
    }
  }

 private:
  using group_of_lines = line_group<Ahead, M>;

  __device__ std::uint32_t ranks() const { return M::ranks != 0 ? M::ranks : group_.size; }
  __device__ std::uint32_t warp() const { return m_.thread() / 32; }
  __device__ std::uint32_t workers() const { return m_.threads() / 32 - 1; }
  __device__ bool meet(bool ok) const { return !m_.sync_or(!ok); }
  /// First line of this warp's round on an edge that `ctas` CTAs serve.
  __device__ std::uint32_t line_of_round(std::uint32_t round, std::uint32_t ctas) const {
    return ((round * ctas + m_.cta()) * workers() + warp()) * (lines_per_warp * Ahead);
  }
  __device__ line_extent sent_to(std::uint32_t r, bool gathered) const {
    if (gathered) return received_from(op_.own());
    const exchange_edge& edge = args_.edges[r];
    return {const_cast<std::byte*>(edge.send), edge.send_bytes, edge.send_chunk};
  }
  __device__ line_extent received_from(std::uint32_t r) const {
    const exchange_edge& edge = args_.edges[r];
    return {edge.receive, edge.receive_bytes, edge.receive_chunk};
  }

  __device__ bool fold() {
    const line_extent out = received_from(op_.own());
    std::uint32_t lines = out.lines;
    for (std::uint32_t r = 0; r < ranks(); ++r)
      if (has(args_.by_lines, r)) lines = max(lines, args_.edges[r].send_chunk);
    bool admitted = false;
    for (std::uint32_t round = 0;; ++round) {
      const std::uint32_t base = line_of_round(round, args_.ctas[op_.own()]);
      if (base >= lines) break;
      const group_of_lines at{m_, op_, args_, base, 0};
      bool whole = out.lines == 0 || at.is_whole(out);
      for (std::uint32_t r = 0; r < ranks(); ++r)
        if (args_.one_source == 0 && has(args_.by_lines, r)) whole = whole && at.is_whole(sent_to(r, false));
      const bool ok =
          whole ? fold_round<true>(at, base, out, admitted) : fold_round<false>(at, base, out, admitted);
      if (!ok) return false;
      admitted = true;
    }
    return admitted || meet(true);
  }
  template <bool Whole>
  __device__ bool fold_round(const group_of_lines& at, std::uint32_t base, const line_extent& out,
                             bool admitted) {
    typename group_of_lines::parts mine;
    if (args_.one_source == 0)
      for (std::uint32_t step = 1; step < ranks(); ++step) {
        const std::uint32_t peer = rank_after<M>(args_, step);
        const line_extent from = sent_to(peer, false);
        if (!has(args_.by_lines, peer) || base >= from.lines) continue;
        at.template load<Whole>(mine, from);
        at.template push<Whole>(mine, peer, from.lines);
      }
    if (base < out.lines) at.template load<Whole>(mine, sent_to(op_.own(), false));
    if (args_.one_source != 0)
      for (std::uint32_t step = 1; step < ranks(); ++step)
        at.template push<Whole>(mine, rank_after<M>(args_, step), out.lines);
    bool ok = true;
    if (base < out.lines) ok = pull<Whole>(at, mine, out.lines);
    if (admitted ? !ok : !meet(ok)) return false;
    if (base < out.lines) at.template store<Whole>(mine, out);
    return true;
  }
  /// Folds what comes from all ranks in rank order, in place of the own part. False, for the whole warp, when
  /// stopped.
  template <bool Whole>
  __device__ bool pull(const group_of_lines& at, typename group_of_lines::parts& mine, std::uint32_t lines) {
    constexpr std::uint32_t n = 2 * Fold::per_word;
    typename Fold::template accumulator<n> sum[Ahead];
#pragma unroll
    for (std::uint32_t r = 0; r < ranks(); ++r) {
      typename group_of_lines::parts part;
      if (r == op_.own()) {
#pragma unroll
        for (std::uint32_t u = 0; u < Ahead; ++u) part[u] = mine[u];
      } else if (!at.template receive<Whole>(part, r, lines)) {
        return false;
      }
#pragma unroll
      for (std::uint32_t u = 0; u < Ahead; ++u)
        if (r == 0)
          fold_.template begin<n>(sum[u], part[u].w, r);
        else
          fold_.template add<n>(sum[u], part[u].w, r);
    }
#pragma unroll
    for (std::uint32_t u = 0; u < Ahead; ++u) fold_.template finish<n>(sum[u], mine[u].w);
    return true;
  }

  __device__ void push_round(std::uint32_t round, bool gathered) {
    for (std::uint32_t step = 1; step < ranks(); ++step) {
      const std::uint32_t peer = rank_after<M>(args_, step);
      if (!serves(peer)) continue;
      const line_extent from = sent_to(peer, gathered);
      const std::uint32_t base = line_of_round(round, args_.ctas[peer]);
      if (base >= from.lines) continue;
      const group_of_lines at{m_, op_, args_, base, gathered ? args_.gathered_lines : 0};
      typename group_of_lines::parts part;
      if (at.is_whole(from)) {
        at.template load<true>(part, from);
        at.template push<true>(part, peer, from.lines);
      } else {
        at.template load<false>(part, from);
        at.template push<false>(part, peer, from.lines);
      }
    }
  }
  __device__ bool serves(std::uint32_t peer) const {
    return has(args_.by_lines, peer) && m_.cta() < args_.ctas[peer];
  }
  /// Takes a peer's lines; the CTA meets before its first store.
  template <bool Whole>
  __device__ bool take(const group_of_lines& at, std::uint32_t peer, const line_extent& to, bool admitted) {
    typename group_of_lines::parts part;
    const bool ok = at.template receive<Whole>(part, peer, to.lines);
    if (admitted ? !ok : !meet(ok)) return false;
    at.template store<Whole>(part, to);
    return true;
  }
  /// Pushes run a round ahead of what is taken. `gathered`: the fold's share goes out; then the operation is
  /// admitted already.
  __device__ bool copy(bool gathered) {
    bool admitted = gathered;
    push_round(0, gathered);
    bool more = true;
    for (std::uint32_t round = 0; more; ++round) {
      push_round(round + 1, gathered);
      more = false;
      for (std::uint32_t step = 1; step < ranks(); ++step) {
        const std::uint32_t peer = rank_after<M>(args_, ranks() - step);
        if (!serves(peer)) continue;
        const std::uint32_t base = line_of_round(round, args_.ctas[peer]);
        const line_extent to = received_from(peer);
        more = more || base < sent_to(peer, gathered).lines;
        if (base >= to.lines) continue;
        more = true;
        const group_of_lines at{m_, op_, args_, base, gathered ? args_.gathered_lines : 0};
        const bool ok =
            at.is_whole(to) ? take<true>(at, peer, to, admitted) : take<false>(at, peer, to, admitted);
        if (!ok) return false;
        admitted = true;
      }
    }
    return admitted || meet(true);
  }

  M& m_;
  operation<M>& op_;
  const exchange_args& args_;
  const group_view& group_;
  Fold fold_;
};

template <std::uint32_t Ahead, class Fold, class M>
__device__ void exchange_lines(M& m, const exchange_args& args) {
  operation<M> op{m, args};
  if constexpr (Fold::folds) {
    bool ok = op.begin();
    if (ok) {
      op.send_signature();
      ok = line_exchange<Ahead, Fold, M>{m, op, args}.run();
    }
    op.end(ok);
  } else {
    const own_part<M> own{m, args};
    bool ok = op.begin();
    if (ok) {
      op.send_signature();
      ok = line_exchange<Ahead, Fold, M>{m, op, args}.run();
      if (ok) own.store();
    }
    op.end(ok);
  }
}

}  // namespace chorale::kernels
