// Collectives as test data: for any of them, what each rank's memory holds before and after, and the call.
//
// A rank's memory is one arena: input, output (or the memory that both share in place), guard bytes around. A
// test lays arenas out where it likes, runs `describe` on every rank, and compares whole arenas. Folds are
// compared with the host's (docs/numbers.md). Deterministic in the seed.
#pragma once

#include <chorale/kernels/exchange_call.hpp>
#include <chorale/kernels/host_fold.hpp>
#include <chorale/kernels/host_scale.hpp>
#include <chorale/kernels/small_float.hpp>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace chorale::kernels_test {

using bytes = std::vector<std::byte>;

enum class placement { separate, in_place, misaligned };

inline constexpr std::uint64_t guard_bytes = 256;
inline constexpr std::byte guard{0xab};

struct arena_plan {
  std::uint64_t in_at = 0, in_bytes = 0;
  std::uint64_t out_at = 0, out_bytes = 0;
  std::uint64_t total = 0;
};

/// From `from` to `to`, in elements of `type`.
struct test_message {
  rank_t from, to;
  std::uint64_t count;
  dtype type;
  [[nodiscard]] std::uint64_t length() const { return count * size_of(type); }
};

struct collective_case {
  using k = cuda::exchange_kind;

  cuda::exchange_kind kind = k::barrier;
  dtype type = dtype::f32;
  reduction op = reduction::none;
  rank_t root = 0;
  std::uint64_t count = 0;
  placement where = placement::separate;
  std::vector<test_message> batch{};  ///< messages; none: everybody sends `count` to the next rank

  [[nodiscard]] std::string name() const {
    constexpr const char* places[] = {"", ", in place", ", misaligned"};
    return std::string{cuda::name_of(kind)} + " of " + std::to_string(count) + " x " +
           std::string{chorale::name_of(type)} +
           (op == reduction::none ? "" : ", " + std::string{chorale::name_of(op)}) + ", root " +
           std::to_string(root) + places[static_cast<int>(where)];
  }
  [[nodiscard]] bool is_pairwise() const { return kind == k::messages || kind == k::all_to_all_v; }
  [[nodiscard]] bool folds() const {
    return kind == k::all_reduce || kind == k::reduce || kind == k::reduce_scatter ||
           kind == k::reduce_scatter_v;
  }

  /// Messages lie apart, each from a line on.
  static std::uint64_t padded(std::uint64_t length) { return (length + 127) / 128 * 128; }
  /// premul_sum: a factor per rank, as an element.
  [[nodiscard]] std::uint64_t scalar(rank_t rank) const { return element_of(0.75 + 0.5 * rank, rank + 2u); }
  /// Elements of a rank's share.
  [[nodiscard]] std::uint64_t share(rank_t r) const {
    if (kind < k::all_gather_v) return count;
    const auto n = static_cast<std::uint64_t>(r);
    return n % 2 == 0 ? count + 3 * n : count / (n + 1);
  }
  /// Elements that `from` sends to `to` in an all_to_all_v.
  [[nodiscard]] std::uint64_t pair_share(rank_t from, rank_t to) const {
    return (from + 2 * to) % 3 == 1 ? 0 : count + static_cast<std::uint64_t>(5 * from + to);
  }
  [[nodiscard]] std::uint64_t before(rank_t r) const {
    std::uint64_t sum = 0;
    for (rank_t p = 0; p < r; ++p) sum += share(p);
    return sum;
  }
  [[nodiscard]] std::vector<test_message> messages(int n) const {
    if (!batch.empty()) return batch;
    std::vector<test_message> all;
    for (rank_t r = 0; r < n; ++r) all.push_back({r, (r + 1) % n, count, type});
    return all;
  }
  [[nodiscard]] std::vector<std::uint64_t> shares(int n) const {
    std::vector<std::uint64_t> all;
    for (rank_t r = 0; r < n; ++r) all.push_back(share(r));
    return all;
  }

  [[nodiscard]] arena_plan plan(rank_t rank, int n) const {
    const std::uint64_t size = size_of(type);
    const std::uint64_t one = share(rank) * size;
    const std::uint64_t all = before(n) * size;
    std::uint64_t own_begins = before(rank) * size;
    arena_plan p;
    bool own_in_out = false;  // in place, the input lies in the output; else the other way round
    switch (kind) {
      case k::all_reduce:
        p.in_bytes = p.out_bytes = count * size;
        own_begins = 0;
        break;
      case k::reduce:
        p.in_bytes = count * size;
        p.out_bytes = rank == root ? count * size : 0;
        own_begins = 0;
        break;
      case k::broadcast:
        p.in_bytes = rank == root ? count * size : 0;
        p.out_bytes = count * size;
        own_begins = 0;
        break;
      case k::all_gather:
      case k::all_gather_v:
        p.in_bytes = one;
        p.out_bytes = all;
        own_in_out = true;
        break;
      case k::gather:
      case k::gather_v:
        p.in_bytes = one;
        p.out_bytes = rank == root ? all : 0;
        own_in_out = true;
        break;
      case k::reduce_scatter:
      case k::reduce_scatter_v:
        p.in_bytes = all;
        p.out_bytes = one;
        break;
      case k::scatter:
      case k::scatter_v:
        p.in_bytes = rank == root ? all : 0;
        p.out_bytes = one;
        break;
      case k::all_to_all:
        p.in_bytes = p.out_bytes = all;
        break;
      case k::all_to_all_v:
        for (rank_t r = 0; r < n; ++r) {
          p.in_bytes += pair_share(rank, r) * size;
          p.out_bytes += pair_share(r, rank) * size;
        }
        break;
      case k::messages:
        for (const test_message& m : messages(n)) {
          if (m.from == rank) p.in_bytes += padded(m.length());
          if (m.to == rank) p.out_bytes += padded(m.length());
        }
        break;
      case k::barrier:
        break;
    }
    const std::uint64_t odd = where == placement::misaligned ? size : 0;
    p.in_at = guard_bytes + odd;
    if (where == placement::in_place && p.in_bytes != 0 && p.out_bytes != 0) {
      p.out_at = p.in_at;
      (own_in_out ? p.in_at : p.out_at) += own_begins;
      p.total = guard_bytes + std::max(p.in_at + p.in_bytes, p.out_at + p.out_bytes);
    } else {
      p.out_at = padded(p.in_at + p.in_bytes) + guard_bytes + odd;
      p.total = p.out_at + p.out_bytes + guard_bytes;
    }
    return p;
  }

  [[nodiscard]] result<cuda::exchange_call> describe(rank_t rank, int n, std::byte* arena) const {
    const arena_plan p = plan(rank, n);
    std::byte* in = arena + p.in_at;
    std::byte* out = arena + p.out_at;
    const cuda::place_in_group at{rank, n};
    const cuda::reduction_of how{type, op, scalar(rank)};
    switch (kind) {
      case k::all_reduce:
        return cuda::all_reduce_call(at, in, out, count, how);
      case k::reduce:
        return cuda::reduce_call(at, in, out, count, how, root);
      case k::broadcast:
        return cuda::broadcast_call(at, in, out, count, type, root);
      case k::all_gather:
        return cuda::all_gather_call(at, in, out, count, type);
      case k::all_gather_v:
        return cuda::all_gather_v_call(at, in, out, shares(n), type);
      case k::gather:
        return cuda::gather_call(at, in, out, count, type, root);
      case k::gather_v:
        return cuda::gather_v_call(at, in, out, shares(n), type, root);
      case k::reduce_scatter:
        return cuda::reduce_scatter_call(at, in, out, count, how);
      case k::reduce_scatter_v:
        return cuda::reduce_scatter_v_call(at, in, out, shares(n), how);
      case k::scatter:
        return cuda::scatter_call(at, in, out, count, type, root);
      case k::scatter_v:
        return cuda::scatter_v_call(at, in, out, shares(n), type, root);
      case k::all_to_all:
        return cuda::all_to_all_call(at, in, out, count, type);
      case k::all_to_all_v: {
        std::vector<std::uint64_t> sent, received;
        for (rank_t r = 0; r < n; ++r) {
          sent.push_back(pair_share(rank, r));
          received.push_back(pair_share(r, rank));
        }
        return cuda::all_to_all_v_call(at, in, sent, out, received, type);
      }
      case k::messages: {
        std::vector<cuda::message> mine;
        for (const test_message& m : messages(n)) {
          if (m.from == rank) {
            mine.push_back(cuda::send_to(m.to, in, m.count, m.type));
            in += padded(m.length());
          }
          if (m.to == rank) {
            mine.push_back(cuda::receive_from(m.from, out, m.count, m.type));
            out += padded(m.length());
          }
        }
        return cuda::messages_call(at, mine);
      }
      case k::barrier:
        break;
    }
    return cuda::barrier_call(at);
  }

  [[nodiscard]] bytes initial(rank_t rank, int n, unsigned seed) const {
    const arena_plan p = plan(rank, n);
    bytes arena(p.total, guard);
    fill_with_elements(arena.data() + p.in_at, p.in_bytes, seed * 31u + static_cast<unsigned>(rank));
    return arena;
  }

  /// A rank's arena afterwards, from all arenas before.
  [[nodiscard]] bytes expected(rank_t rank, int n, const std::vector<bytes>& before_all) const {
    const std::uint64_t size = size_of(type);
    const arena_plan p = plan(rank, n);
    bytes arena = before_all[static_cast<std::size_t>(rank)];
    const auto input = [&](rank_t r) {
      return before_all[static_cast<std::size_t>(r)].data() + plan(r, n).in_at;
    };
    std::byte* out = arena.data() + p.out_at;
    const auto put = [&](const std::byte* from, std::uint64_t length) {
      std::memcpy(out, from, length);
      out += length;
    };
    if (p.out_bytes == 0) return arena;
    switch (kind) {
      case k::all_reduce:
      case k::reduce:
      case k::reduce_scatter:
      case k::reduce_scatter_v: {
        const bool scatters = kind == k::reduce_scatter || kind == k::reduce_scatter_v;
        const std::uint64_t begin = scatters ? before(rank) * size : 0;
        std::vector<const std::byte*> parts;
        for (rank_t r = 0; r < n; ++r) parts.push_back(input(r) + begin);
        fold(out, parts, p.out_bytes / size);
        break;
      }
      case k::broadcast:
        put(input(root), p.out_bytes);
        break;
      case k::all_gather:
      case k::all_gather_v:
      case k::gather:
      case k::gather_v:
        for (rank_t r = 0; r < n; ++r) put(input(r), share(r) * size);
        break;
      case k::scatter:
      case k::scatter_v:
        put(input(root) + before(rank) * size, p.out_bytes);
        break;
      case k::all_to_all:
        for (rank_t r = 0; r < n; ++r) put(input(r) + before(rank) * size, share(rank) * size);
        break;
      case k::all_to_all_v:
        for (rank_t r = 0; r < n; ++r) {
          std::uint64_t begin = 0;
          for (rank_t to = 0; to < rank; ++to) begin += pair_share(r, to) * size;
          put(input(r) + begin, pair_share(r, rank) * size);
        }
        break;
      case k::messages: {
        std::vector<std::uint64_t> sent(static_cast<std::size_t>(n));
        for (const test_message& m : messages(n)) {
          std::uint64_t& begin = sent[static_cast<std::size_t>(m.from)];
          if (m.to == rank) {
            put(input(m.from) + begin, m.length());
            out += padded(m.length()) - m.length();
          }
          begin += padded(m.length());
        }
        break;
      }
      case k::barrier:
        break;
    }
    return arena;
  }

 private:
  [[nodiscard]] std::uint64_t element_of(double value, std::uint64_t integer) const {
    const auto narrow = static_cast<float>(value);
    switch (type) {
      case dtype::f16:
        return f16{narrow}.bits;
      case dtype::bf16:
        return bf16{narrow}.bits;
      case dtype::f8e4m3:
        return f8e4m3{narrow}.bits;
      case dtype::f8e5m2:
        return f8e5m2{narrow}.bits;
      case dtype::f32:
        return __builtin_bit_cast(std::uint32_t, narrow);
      case dtype::f64:
        return __builtin_bit_cast(std::uint64_t, value);
      default:
        return integer;
    }
  }
  [[nodiscard]] bool is_float() const {
    return type == dtype::f32 || type == dtype::f64 || type == dtype::f16 || type == dtype::bf16 ||
           type == dtype::f8e4m3 || type == dtype::f8e5m2;
  }
  /// Any bits; floats that are folded are mostly numbers whose folds round, some are any bits.
  void fill_with_elements(std::byte* to, std::uint64_t length, unsigned seed) const {
    std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    const auto next = [&state] {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      return state * 0x2545f4914f6cdd1du;
    };
    const std::uint64_t size = folds() ? size_of(type) : 8;
    for (std::uint64_t at = 0; at < length; at += size) {
      const std::uint64_t random = next() >> 8;
      std::uint64_t element = random;
      if (folds() && is_float() && random % 31 != 0)
        element = element_of((static_cast<double>(random % 20'011) - 10'005) / 97, 0);
      std::memcpy(to + at, &element, std::min(size, length - at));
    }
  }
  void fold(std::byte* out, const std::vector<const std::byte*>& parts, std::uint64_t n) const {
    const std::uint64_t size = size_of(type);
    std::vector<bytes> scaled;
    std::vector<const std::byte*> in = parts;
    if (op == reduction::premul_sum)
      for (std::size_t r = 0; r < parts.size(); ++r) {
        const std::uint64_t factor = scalar(static_cast<rank_t>(r));
        scaled.emplace_back(n * size);
        find_host_scaling(type).value()(scaled.back().data(), parts[r], n,
                                        reinterpret_cast<const std::byte*>(&factor));
        in[r] = scaled.back().data();
      }
    const host_folding how = find_host_folding(type, op).value();
    bytes acc(n * how.accumulator_bytes + 1), next(n * how.accumulator_bytes + 1);
    how.begin(acc.data(), in[0], n);
    for (std::size_t r = 1; r + 1 < in.size(); ++r) {
      how.fold(next.data(), acc.data(), in[r], n);
      acc.swap(next);
    }
    bytes made(n * size + 1);
    const auto ranks = static_cast<std::uint32_t>(in.size());
    if (op == reduction::avg)
      how.finish_divided(made.data(), acc.data(), in.back(), n, ranks);
    else
      how.finish(made.data(), acc.data(), in.back(), n);
    std::memcpy(out, made.data(), n * size);
  }
};

/// Copying collectives of `n` ranks in sizes and places.
inline std::vector<collective_case> copying_cases(int n, const std::vector<std::uint64_t>& counts = {
                                                             0, 1, 7, 64, 257}) {
  using k = cuda::exchange_kind;
  std::vector<collective_case> all{{k::barrier}};
  for (std::uint64_t count : counts)
    for (placement where : {placement::separate, placement::in_place, placement::misaligned})
      for (k kind : {k::broadcast, k::all_gather, k::all_to_all, k::gather, k::scatter, k::all_gather_v,
                     k::all_to_all_v, k::gather_v, k::scatter_v, k::messages}) {
        const bool has_place = kind != k::all_to_all && kind != k::all_to_all_v && kind != k::messages;
        if (where == placement::in_place && !has_place) continue;
        const dtype type = count % 2 == 0                   ? dtype::f32
                           : where == placement::misaligned ? dtype::u8
                                                            : dtype::f16;
        all.push_back({kind, type, reduction::none, static_cast<rank_t>(count) % n, count, where});
      }
  return all;
}

/// Every type with every operation it has, in an all_reduce of `count`.
inline std::vector<collective_case> folding_cases(int n, std::uint64_t count) {
  std::vector<collective_case> all;
  static_cast<void>(n);
  for (dtype type : {dtype::i8, dtype::u8, dtype::i32, dtype::u32, dtype::i64, dtype::u64, dtype::f16,
                     dtype::bf16, dtype::f32, dtype::f64, dtype::f8e4m3, dtype::f8e5m2})
    for (reduction op : {reduction::sum, reduction::prod, reduction::min, reduction::max, reduction::avg,
                         reduction::premul_sum, reduction::bit_and, reduction::bit_or, reduction::bit_xor})
      if (find_host_folding(type, op))
        all.push_back({cuda::exchange_kind::all_reduce, type, op, 0, count, placement::separate});
  return all;
}

/// The folding collectives in sizes and places.
inline std::vector<collective_case> folding_shapes(int n, const std::vector<std::uint64_t>& counts = {
                                                              0, 1, 7, 64, 257}) {
  using k = cuda::exchange_kind;
  std::vector<collective_case> all;
  for (std::uint64_t count : counts)
    for (placement where : {placement::separate, placement::in_place, placement::misaligned})
      for (k kind : {k::all_reduce, k::reduce, k::reduce_scatter, k::reduce_scatter_v}) {
        const dtype type = count % 2 == 0                   ? dtype::f32
                           : where == placement::misaligned ? dtype::i8
                                                            : dtype::bf16;
        const reduction op = where == placement::in_place ? reduction::avg : reduction::sum;
        all.push_back({kind, type, op, static_cast<rank_t>(count) % n, count, where});
      }
  return all;
}

/// Messages between some pairs of ranks, a rank and itself among them.
inline collective_case random_messages(int n, unsigned seed, std::uint64_t scale = 1) {
  std::mt19937 random{seed};
  collective_case made{cuda::exchange_kind::messages};
  constexpr std::uint64_t counts[] = {0, 1, 7, 40, 200, 701};
  constexpr dtype types[] = {dtype::u8, dtype::f16, dtype::f32, dtype::f64};
  for (rank_t from = 0; from < n; ++from)
    for (rank_t to = 0; to < n; ++to)
      if (random() % 3 != 0)
        made.batch.push_back(
            {from, to, counts[random() % std::size(counts)] * scale, types[random() % std::size(types)]});
  if (made.batch.empty()) made.batch.push_back({0, 1, 5, dtype::u8});
  made.count = made.batch.size();
  return made;
}

/// All ranks' arenas of a case in this process.
class case_memory {
 public:
  case_memory(const collective_case& what, int n, unsigned seed) : what_{what}, n_{n} {
    for (rank_t r = 0; r < n; ++r) {
      before_.push_back(what.initial(r, n, seed));
      arenas_.emplace_back((before_.back().size() + 127) / 128);
      std::memcpy(arena(r), before_.back().data(), before_.back().size());
    }
  }
  [[nodiscard]] std::byte* arena(rank_t r) { return arenas_[static_cast<std::size_t>(r)].data()->at; }

  /// Where the first rank's arena differs from what it should hold; empty when none does.
  [[nodiscard]] std::string first_wrong() {
    for (rank_t r = 0; r < n_; ++r) {
      const bytes expected = what_.expected(r, n_, before_);
      for (std::size_t i = 0; i < expected.size(); ++i)
        if (expected[i] != arena(r)[i])
          return "rank " + std::to_string(r) + ", byte " +
                 std::to_string(static_cast<std::int64_t>(i) -
                                static_cast<std::int64_t>(what_.plan(r, n_).out_at)) +
                 " of the output is " + std::to_string(static_cast<int>(arena(r)[i])) + " instead of " +
                 std::to_string(static_cast<int>(expected[i]));
    }
    return {};
  }
  /// Whether all that the launch would have written is ones, and the rest is as before.
  template <class Args>
  [[nodiscard]] bool is_poisoned(rank_t r, const Args& args) {
    bytes expected = before_[static_cast<std::size_t>(r)];
    for (std::size_t p = 0; p < static_cast<std::size_t>(n_); ++p)
      if (args.edges[p].receive_bytes != 0)
        std::memset(expected.data() + (args.edges[p].receive - arena(r)), 0xff, args.edges[p].receive_bytes);
    return std::memcmp(expected.data(), arena(r), expected.size()) == 0;
  }
  void spoil_output(rank_t r) {
    const arena_plan p = what_.plan(r, n_);
    std::memset(arena(r) + p.out_at, 1, p.out_bytes);
  }

 private:
  struct alignas(128) line {
    std::byte at[128];
  };
  const collective_case& what_;
  int n_;
  std::vector<bytes> before_;
  std::vector<std::vector<line>> arenas_;
};

}  // namespace chorale::kernels_test
