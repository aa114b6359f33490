// LL exchange: every rank pushes what its peers shall have as flagged packets, and copies or folds what
// arrives.
//
// Packet i of an extent carries its 8-byte word i and lies at slot i, whatever the grid. One hop, no fence,
// no credit: two slot sets per edge suffice (protocol.hpp). A fold goes in rank order, so all ranks that fold
// the same end bitwise the same. In place is safe: the thread that stores a word is the one that loaded and
// pushed it before.
#pragma once

#include <chorale/kernels/fold.hpp>
#include <chorale/kernels/operation.hpp>

namespace chorale::kernels {

/// Word `i` of an extent; zeros behind its end. `alignment` is that of the extent's begin, up to 8.
CHORALE_HOST_DEVICE inline std::uint64_t load_word(const std::byte* extent, std::uint64_t bytes,
                                                   std::uint64_t i, std::uint32_t alignment) {
  const std::byte* at = extent + i * word_bytes;
  const std::uint64_t rest = bytes - i * word_bytes;
  if (rest >= word_bytes && alignment >= 8) return *reinterpret_cast<const std::uint64_t*>(at);
  if (rest >= word_bytes && alignment >= 4) {
    const auto* halves = reinterpret_cast<const std::uint32_t*>(at);
    return halves[0] | (static_cast<std::uint64_t>(halves[1]) << 32);
  }
  if (rest == 4 && alignment >= 4) return *reinterpret_cast<const std::uint32_t*>(at);
  const std::uint32_t step = alignment >= 2 && rest % 2 == 0 ? 2 : 1;
  std::uint64_t word = 0;
  for (std::uint32_t k = 0; k < word_bytes && k < rest; k += step) {
    const std::uint64_t piece =
        step == 2 ? *reinterpret_cast<const std::uint16_t*>(at + k) : static_cast<std::uint64_t>(at[k]);
    word |= piece << (8 * k);
  }
  return word;
}
CHORALE_HOST_DEVICE inline void store_word(std::byte* extent, std::uint64_t bytes, std::uint64_t i,
                                           std::uint32_t alignment, std::uint64_t word) {
  std::byte* at = extent + i * word_bytes;
  const std::uint64_t rest = bytes - i * word_bytes;
  if (rest >= word_bytes && alignment >= 8) {
    *reinterpret_cast<std::uint64_t*>(at) = word;
  } else if (rest >= word_bytes && alignment >= 4) {
    reinterpret_cast<std::uint32_t*>(at)[0] = static_cast<std::uint32_t>(word);
    reinterpret_cast<std::uint32_t*>(at)[1] = static_cast<std::uint32_t>(word >> 32);
  } else if (rest == 4 && alignment >= 4) {
    *reinterpret_cast<std::uint32_t*>(at) = static_cast<std::uint32_t>(word);
  } else {
    const std::uint32_t step = alignment >= 2 && rest % 2 == 0 ? 2 : 1;
    for (std::uint32_t k = 0; k < word_bytes && k < rest; k += step)
      if (step == 2)
        *reinterpret_cast<std::uint16_t*>(at + k) = static_cast<std::uint16_t>(word >> (8 * k));
      else
        at[k] = static_cast<std::byte>(word >> (8 * k));
  }
}

template <class Fold, class M>
CHORALE_HOST_DEVICE Fold make_fold(M& m, const exchange_args& args) {
  return Fold{{m.shared().scalars, args.group.size, static_cast<reduction>(args.op), args.is_signed != 0}};
}

/// A thread's words of an extent: every `stride`-th. The last warp has none where there are others: it sees
/// to signatures, so that neither wait delays the other.
struct word_share {
  std::uint64_t first, stride, end;
};
template <class M>
CHORALE_HOST_DEVICE word_share share_of(const M& m, std::uint64_t bytes, std::uint32_t ctas) {
  const std::uint32_t workers = m.threads() > 32 ? m.threads() - 32 : m.threads();
  if (m.thread() >= workers || m.cta() >= ctas) return {0, 1, 0};
  return {static_cast<std::uint64_t>(m.cta()) * workers + m.thread(),
          static_cast<std::uint64_t>(ctas) * workers, words_of(bytes)};
}

/// The rank that a rank turns to first, and so on around: not all to the same one at once.
CHORALE_HOST_DEVICE inline std::uint32_t rank_after(const group_view& group, std::uint32_t steps) {
  const std::uint32_t r = group.rank + steps;
  return r < group.size ? r : r - group.size;
}
template <class M>
CHORALE_HOST_DEVICE std::uint32_t rank_after(const exchange_args& args, std::uint32_t steps) {
  return M::ranks == 2 ? steps % 2 : rank_after(args.group, steps);
}

/// Pushes and takes the words that one thread has.
template <class M, class Fold>
class packet_exchange {
 public:
  CHORALE_HOST_DEVICE packet_exchange(M& m, operation<M>& op, const exchange_args& args)
      : m_{m}, op_{op}, args_{args}, group_{args.group}, fold_{make_fold<Fold>(m, args)} {}

  /// The first word that this thread pushes: loaded beside what begin() reads.
  CHORALE_HOST_DEVICE void load_first() {
    if (!loads_first()) return;
    const std::uint32_t peer = rank_after<M>(args_, 1);
    const word_share share = share_of(m_, args_.edges[peer].send_bytes, args_.ctas[peer]);
    if (share.first < share.end) first_ = load(peer, share.first);
  }

  CHORALE_HOST_DEVICE void push() {
    for (std::uint32_t step = 1; step < ranks(); ++step) {
      const std::uint32_t peer = rank_after<M>(args_, step);
      if (!has(args_.by_packets, peer)) continue;
      const word_share share = share_of(m_, args_.edges[peer].send_bytes, args_.ctas[peer]);
      packet* slots = packet_slots(args_, peer, op_.own(), op_.parity(peer));
      const std::uint32_t flag = op_.flag(peer);
      for (std::uint64_t i = share.first; i < share.end; i += share.stride) {
        const bool loaded = loads_first() && i == share.first && (step == 1 || args_.one_source != 0);
        m_.store_packet(slots + i, word_packet(loaded ? first_ : load(peer, i), flag));
      }
    }
  }

  /// After push(). The first arrival is awaited before the CTA meets to admit the operation: both waits
  /// overlap. Per thread: false when stopped.
  CHORALE_HOST_DEVICE bool take() {
    bool ok = op_.check_signatures();
    if constexpr (Fold::folds) {
      if (fold_.scales() && m_.sync_or(!ok)) return false;  // scalars come with the signatures
      return take_folding(ok);
    } else {
      return take_copying(ok);
    }
  }

 private:
  CHORALE_HOST_DEVICE std::uint32_t ranks() const { return M::ranks != 0 ? M::ranks : group_.size; }
  CHORALE_HOST_DEVICE bool loads_first() const {
    return (M::ranks == 2 || args_.one_source != 0) && has(args_.by_packets, rank_after<M>(args_, 1));
  }
  CHORALE_HOST_DEVICE std::uint64_t load(std::uint32_t rank, std::uint64_t i) const {
    return load_word(args_.edges[rank].send, args_.edges[rank].send_bytes, i, args_.alignment);
  }
  CHORALE_HOST_DEVICE bool receive(std::uint32_t peer, std::uint64_t i, std::uint64_t& word) const {
    const packet* slot = packet_slots(args_, op_.own(), peer, op_.parity(peer)) + i;
    const std::uint32_t flag = op_.flag(peer);
    packet p{};
    if (!op_.wait([&] { return carries(p = m_.load_packet(slot), flag); })) return false;
    word = payload(p);
    return true;
  }

  /// Word `i` of all ranks, folded in rank order.
  CHORALE_HOST_DEVICE bool fold_word(std::uint64_t i, std::uint64_t own, std::uint64_t& word) const {
    constexpr std::uint32_t n = Fold::per_word;
    typename Fold::template accumulator<n> sum;
    for (std::uint32_t r = 0; r < ranks(); ++r) {
      std::uint64_t part[1] = {own};
      if (r != op_.own() && !receive(r, i, part[0])) return false;
      if (r == 0)
        fold_.template begin<n>(sum, part, r);
      else
        fold_.template add<n>(sum, part, r);
    }
    std::uint64_t folded[1];
    fold_.template finish<n>(sum, folded);
    word = folded[0];
    return true;
  }
  CHORALE_HOST_DEVICE std::uint64_t own_word(const word_share& share, std::uint64_t i) const {
    return args_.one_source != 0 && i == share.first && loads_first() ? first_ : load(op_.own(), i);
  }
  CHORALE_HOST_DEVICE bool take_folding(bool ok) {
    const std::uint32_t own = op_.own();
    const std::uint64_t bytes = args_.edges[own].receive_bytes;
    const word_share share = share_of(m_, bytes, args_.ctas[own]);
    std::uint64_t word = 0;
    const bool some = share.first < share.end;
    if (ok && some) ok = fold_word(share.first, own_word(share, share.first), word);
    if (m_.sync_or(!ok)) return false;
    if (some) store_word(args_.edges[own].receive, bytes, share.first, args_.alignment, word);
    for (std::uint64_t i = share.first + share.stride; i < share.end; i += share.stride) {
      if (!fold_word(i, load(own, i), word)) return false;
      store_word(args_.edges[own].receive, bytes, i, args_.alignment, word);
    }
    return true;
  }

  /// A thread's arrivals, peer after peer.
  struct arrival {
    std::uint32_t step = 0;  ///< of rank_after; ranks() when there is none left
    std::uint32_t peer = 0;
    word_share share{0, 1, 0};
  };
  CHORALE_HOST_DEVICE bool settle(arrival& a) const {
    while (a.share.first >= a.share.end) {
      if (++a.step >= ranks()) return false;
      a.peer = rank_after<M>(args_, ranks() - a.step);  // who turns to this rank first comes first
      if (has(args_.by_packets, a.peer))
        a.share = share_of(m_, args_.edges[a.peer].receive_bytes, args_.ctas[a.peer]);
    }
    return true;
  }
  CHORALE_HOST_DEVICE bool take_copying(bool ok) {
    arrival a;
    std::uint64_t word = 0;
    bool some = settle(a);
    if (ok && some) ok = receive(a.peer, a.share.first, word);
    if (m_.sync_or(!ok)) return false;
    while (some) {
      store_word(args_.edges[a.peer].receive, args_.edges[a.peer].receive_bytes, a.share.first,
                 args_.alignment, word);
      a.share.first += a.share.stride;
      some = settle(a);
      if (some && !receive(a.peer, a.share.first, word)) return false;
    }
    return true;
  }

  M& m_;
  operation<M>& op_;
  const exchange_args& args_;
  const group_view& group_;
  Fold fold_;
  std::uint64_t first_ = 0;
};

/// The own part of a copying exchange, by the whole grid: nothing where it is in place. A word per thread is
/// loaded at once, so that after the admission it only has to be stored.
template <class M>
class own_part {
 public:
  CHORALE_HOST_DEVICE own_part(const M& m, const exchange_args& args)
      : m_{m}, edge_{args.edges[own_rank<M>(args)]}, alignment_{args.alignment} {
    if (has_word()) word_ = load_word(edge_.send, edge_.receive_bytes, index(), alignment_);
  }
  CHORALE_HOST_DEVICE void store() const {
    if (has_word()) store_word(edge_.receive, edge_.receive_bytes, index(), alignment_, word_);
    const std::uint64_t covered = static_cast<std::uint64_t>(m_.ctas()) * m_.threads() * word_bytes;
    if (edge_.receive_bytes <= covered || edge_.send == edge_.receive) return;
    // whole vectors per CTA, so that all of its pieces are as aligned as the whole
    const std::uint64_t rest = edge_.receive_bytes - covered;
    const std::uint64_t piece = (rest / m_.ctas() / sizeof(vector16) + 1) * sizeof(vector16);
    const std::uint64_t begin = piece * m_.cta();
    if (begin >= rest) return;
    m_.copy(edge_.receive + covered + begin, edge_.send + covered + begin,
            rest - begin < piece ? rest - begin : piece, m_.thread(), m_.threads());
  }

 private:
  [[nodiscard]] CHORALE_HOST_DEVICE std::uint64_t index() const {
    return static_cast<std::uint64_t>(m_.cta()) * m_.threads() + m_.thread();
  }
  [[nodiscard]] CHORALE_HOST_DEVICE bool has_word() const {
    return index() * word_bytes < edge_.receive_bytes && edge_.send != edge_.receive;
  }
  const M& m_;
  const exchange_edge& edge_;
  std::uint32_t alignment_;
  std::uint64_t word_ = 0;
};

template <class Fold, class M>
CHORALE_HOST_DEVICE void exchange_packets(M& m, const exchange_args& args) {
  operation<M> op{m, args};
  packet_exchange<M, Fold> packets{m, op, args};
  packets.load_first();
  if constexpr (Fold::folds) {
    bool ok = op.begin();
    if (ok) {
      op.send_signature();
      packets.push();
      ok = packets.take();
    }
    op.end(ok);
  } else {
    const own_part<M> own{m, args};
    bool ok = op.begin();
    if (ok) {
      op.send_signature();
      packets.push();
      ok = packets.take();
      if (ok) own.store();
    }
    op.end(ok);
  }
}

}  // namespace chorale::kernels
