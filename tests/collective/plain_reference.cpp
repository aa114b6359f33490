#include "plain_reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace chorale::testing {
namespace {

using kinds = collective_kind;

std::uint64_t sum_of(const std::vector<std::uint64_t>& counts, std::size_t first, std::size_t last) {
  return std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(first),
                         counts.begin() + static_cast<std::ptrdiff_t>(last), std::uint64_t{0});
}

/// Calls `with.operator()<T>()` for the C++ type.
template <class With>
auto by_type(dtype type, With with) {
  switch (type) {
    case dtype::i8:
      return with.template operator()<std::int8_t>();
    case dtype::u8:
      return with.template operator()<std::uint8_t>();
    case dtype::i32:
      return with.template operator()<std::int32_t>();
    case dtype::u32:
      return with.template operator()<std::uint32_t>();
    case dtype::i64:
      return with.template operator()<std::int64_t>();
    case dtype::u64:
      return with.template operator()<std::uint64_t>();
    case dtype::f16:
      return with.template operator()<f16>();
    case dtype::bf16:
      return with.template operator()<bf16>();
    case dtype::f64:
      return with.template operator()<double>();
    case dtype::f8e4m3:
      return with.template operator()<f8e4m3>();
    case dtype::f8e5m2:
      return with.template operator()<f8e5m2>();
    default:
      return with.template operator()<float>();
  }
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Where one element of an output comes from.
struct origin {
  rank_t first = 0;
  rank_t last = 0;          // of the ranks that contribute
  std::uint64_t index = 0;  // in the input of each
};

origin origin_of(const plain_case& c, rank_t r, std::uint64_t i) {
  const auto self = static_cast<std::size_t>(r);
  const auto share_of = [&](std::uint64_t index, const std::vector<std::uint64_t>& counts) {
    std::size_t from = 0;
    while (index >= counts[from]) index -= counts[from++];
    return origin{static_cast<rank_t>(from), static_cast<rank_t>(from) + 1, index};
  };
  switch (c.kind) {
    case kinds::all_reduce:
    case kinds::reduce:
      return {0, c.ranks, i};
    case kinds::broadcast:
      return {c.root, c.root + 1, i};
    case kinds::all_gather:
    case kinds::gather: {
      const auto from = static_cast<rank_t>(i / c.count);
      return {from, from + 1, i % c.count};
    }
    case kinds::all_gather_v:
    case kinds::gather_v:
      return share_of(i, c.counts);
    case kinds::reduce_scatter:
      return {0, c.ranks, self * c.count + i};
    case kinds::reduce_scatter_v:
      return {0, c.ranks, sum_of(c.counts, 0, self) + i};
    case kinds::scatter:
      return {c.root, c.root + 1, self * c.count + i};
    case kinds::scatter_v:
      return {c.root, c.root + 1, sum_of(c.counts, 0, self) + i};
    case kinds::all_to_all: {
      const auto from = static_cast<rank_t>(i / c.count);
      return {from, from + 1, self * c.count + i % c.count};
    }
    case kinds::all_to_all_v: {
      std::vector<std::uint64_t> arriving;
      for (const auto& row : c.pairs) arriving.push_back(row[self]);
      origin o = share_of(i, arriving);
      o.index += sum_of(c.pairs[static_cast<std::size_t>(o.first)], 0, self);
      return o;
    }
    case kinds::scan:
      return {0, r + 1, i};
    default:
      return {0, r, i};  // exscan
  }
}

const std::byte* input_of(const plain_case& c, rank_t from, std::uint64_t index) {
  return c.in[static_cast<std::size_t>(from)].data() + index * size_of(c.type);
}

std::uint64_t exact_integer(const plain_case& c, const origin& o) {
  const bool is_signed = c.type == dtype::i8 || c.type == dtype::i32 || c.type == dtype::i64;
  const auto at = [&](rank_t from) { return as_bits(c.type, input_of(c, from, o.index)); };
  std::uint64_t so_far = at(o.first);
  if (c.op == reduction::premul_sum)
    so_far *= static_cast<std::uint64_t>(c.factors[static_cast<std::size_t>(o.first)]);
  for (rank_t from = o.first + 1; from < o.last; ++from) {
    std::uint64_t next = at(from);
    switch (c.op) {
      case reduction::premul_sum:
        next *= static_cast<std::uint64_t>(c.factors[static_cast<std::size_t>(from)]);
        [[fallthrough]];
      case reduction::sum:
      case reduction::avg:
        so_far += next;
        break;
      case reduction::prod:
        so_far *= next;
        break;
      case reduction::min:
      case reduction::max: {
        const bool less =
            is_signed ? static_cast<std::int64_t>(next) < static_cast<std::int64_t>(so_far) : next < so_far;
        if (less == (c.op == reduction::min)) so_far = next;
        break;
      }
      case reduction::bit_and:
        so_far &= next;
        break;
      case reduction::bit_or:
        so_far |= next;
        break;
      case reduction::bit_xor:
        so_far ^= next;
        break;
      default: {  // user
        const auto left = static_cast<std::uint32_t>(so_far);
        const auto right = static_cast<std::uint32_t>(next);
        std::uint32_t both = 0;
        compose(nullptr, reinterpret_cast<std::byte*>(&both), reinterpret_cast<const std::byte*>(&left),
                reinterpret_cast<const std::byte*>(&right), 1);
        so_far = both;
      }
    }
  }
  if (c.op != reduction::avg) return so_far;
  // Small values: nothing wrapped.
  return is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(so_far) / c.ranks)
                   : so_far / static_cast<std::uint64_t>(c.ranks);
}

/// Distance of 1 from the next number, and the smallest positive number.
struct grain {
  double unit;
  double smallest;
};

grain grain_of(dtype type) {
  switch (type) {
    case dtype::f16:
      return {0x1p-11, 0x1p-24};
    case dtype::bf16:
      return {0x1p-8, 0x1p-133};
    case dtype::f8e4m3:
      return {0x1p-4, 0x1p-9};
    case dtype::f8e5m2:
      return {0x1p-3, 0x1p-16};
    case dtype::f32:
      return {0x1p-24, 0x1p-149};
    default:
      return {0x1p-53, 0x1p-1074};
  }
}

std::string float_complaint(const plain_case& c, const origin& o, const std::byte* out, folds how) {
  double exact = 0;
  double magnitude = 0;
  bool started = false;
  for (rank_t from = o.first; from < o.last; ++from) {
    double next = as_double(c.type, input_of(c, from, o.index));
    if (c.op == reduction::premul_sum) next *= c.factors[static_cast<std::size_t>(from)];
    magnitude += std::abs(next);
    if (!started)
      exact = next;
    else if (c.op == reduction::prod)
      exact *= next;
    else if (c.op == reduction::min)
      exact = std::min(exact, next);
    else if (c.op == reduction::max)
      exact = std::max(exact, next);
    else
      exact += next;
    started = true;
  }
  const double terms = o.last - o.first;
  if (c.op == reduction::avg) exact /= c.ranks, magnitude /= c.ranks;
  if (c.op == reduction::prod) magnitude = std::abs(exact) * 2;
  const grain own = grain_of(c.type);
  const grain fold = how == folds::in_elements || own.unit < 0x1p-24 ? own : grain_of(dtype::f32);
  double bound = 0;
  if (c.op != reduction::min && c.op != reduction::max && terms > 1)
    bound = 2 * terms * (fold.unit * magnitude + fold.smallest) + own.unit * std::abs(exact) + own.smallest;
  if (c.op == reduction::premul_sum) bound += own.unit * magnitude + terms * own.smallest;  // of each product
  if (c.op == reduction::prod) bound += 64 * terms * fold.smallest;  // underflow, multiplied on
  const double got = as_double(c.type, out);
  if (std::abs(got - exact) <= bound) return {};
  return std::to_string(got) + " instead of " + std::to_string(exact) + ", bound " + std::to_string(bound);
}

/// The one result that deterministic mode allows: a left fold in f32 (f64 in f64), rounded once.
std::string fold_complaint(const plain_case& c, const origin& o, const std::byte* out) {
  return by_type(c.type, [&]<class T>() -> std::string {
    if constexpr (std::is_integral_v<T>) {
      return {};
    } else {
      using wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
      const auto at = [&](rank_t from) -> wide {
        const auto value = static_cast<wide>(load<T>(input_of(c, from, o.index)));
        if (c.op != reduction::premul_sum) return value;
        const auto factor = static_cast<wide>(c.factors[static_cast<std::size_t>(from)]);
        return static_cast<wide>(static_cast<T>(value * factor));
      };
      wide fold = at(o.first);
      for (rank_t from = o.first + 1; from < o.last; ++from)
        fold = c.op == reduction::prod ? fold * at(from) : fold + at(from);
      if (c.op == reduction::avg) fold /= static_cast<wide>(c.ranks);
      const T expected{static_cast<T>(fold)};
      if (std::memcmp(&expected, out, sizeof expected) == 0) return {};
      return "no left fold in rank order: " + std::to_string(as_double(c.type, out)) + " instead of " +
             std::to_string(static_cast<double>(static_cast<wide>(expected)));
    }
  });
}

}  // namespace

bool is_float(dtype type) noexcept {
  switch (type) {
    case dtype::f16:
    case dtype::bf16:
    case dtype::f32:
    case dtype::f64:
    case dtype::f8e4m3:
    case dtype::f8e5m2:
      return true;
    default:
      return false;
  }
}

double as_double(dtype type, const std::byte* element) {
  return by_type(type, [&]<class T>() {
    if constexpr (std::is_arithmetic_v<T>)
      return static_cast<double>(load<T>(element));
    else
      return static_cast<double>(static_cast<float>(load<T>(element)));
  });
}

std::uint64_t as_bits(dtype type, const std::byte* element) {
  return by_type(type, [&]<class T>() -> std::uint64_t {
    if constexpr (std::is_integral_v<T>)
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(load<T>(element)));
    else
      return 0;
  });
}

void store(dtype type, std::byte* element, double value) {
  by_type(type, [&]<class T>() {
    if constexpr (std::is_arithmetic_v<T>) {
      const T stored = static_cast<T>(value);
      std::memcpy(element, &stored, sizeof stored);
    } else {
      const T stored{static_cast<float>(value)};
      std::memcpy(element, &stored, sizeof stored);
    }
  });
}

void store_bits(dtype type, std::byte* element, std::uint64_t bits) {
  std::memcpy(element, &bits, size_of(type));  // little-endian, as all of chorale
}

void compose(void*, std::byte* out, const std::byte* left, const std::byte* right,
             std::size_t count) noexcept {
  struct map {
    std::uint16_t factor;
    std::uint16_t addend;
  };
  for (std::size_t i = 0; i < count; ++i) {
    const auto l = load<map>(left + i * sizeof(map));
    const auto r = load<map>(right + i * sizeof(map));
    const map both{static_cast<std::uint16_t>(std::uint32_t{l.factor} * r.factor),
                   static_cast<std::uint16_t>(std::uint32_t{l.factor} * r.addend + l.addend)};
    std::memcpy(out + i * sizeof(map), &both, sizeof both);
  }
}

bool plain_case::reads(rank_t r) const {
  return r == root || (kind != kinds::broadcast && kind != kinds::scatter && kind != kinds::scatter_v);
}

bool plain_case::writes(rank_t r) const {
  if (kind == kinds::exscan) return r != 0;
  return r == root || (kind != kinds::reduce && kind != kinds::gather && kind != kinds::gather_v);
}

std::uint64_t plain_case::in_count(rank_t r) const {
  const auto self = static_cast<std::size_t>(r);
  const auto n = static_cast<std::uint64_t>(ranks);
  switch (kind) {
    case kinds::reduce_scatter:
    case kinds::scatter:
    case kinds::all_to_all:
      return n * count;
    case kinds::reduce_scatter_v:
    case kinds::scatter_v:
      return sum_of(counts, 0, counts.size());
    case kinds::all_gather_v:
    case kinds::gather_v:
      return counts[self];
    case kinds::all_to_all_v:
      return sum_of(pairs[self], 0, pairs[self].size());
    default:
      return count;
  }
}

std::uint64_t plain_case::out_count(rank_t r) const {
  const auto self = static_cast<std::size_t>(r);
  const auto n = static_cast<std::uint64_t>(ranks);
  switch (kind) {
    case kinds::all_gather:
    case kinds::gather:
    case kinds::all_to_all:
      return n * count;
    case kinds::all_gather_v:
    case kinds::gather_v:
      return sum_of(counts, 0, counts.size());
    case kinds::reduce_scatter_v:
    case kinds::scatter_v:
      return counts[self];
    case kinds::all_to_all_v: {
      std::uint64_t sum = 0;
      for (const auto& row : pairs) sum += row[self];
      return sum;
    }
    default:
      return count;
  }
}

std::uint64_t plain_case::share_begins(rank_t r) const {
  const auto self = static_cast<std::size_t>(r);
  switch (kind) {
    case kinds::all_gather:
    case kinds::gather:
    case kinds::reduce_scatter:
    case kinds::scatter:
      return self * count;
    case kinds::all_gather_v:
    case kinds::gather_v:
    case kinds::reduce_scatter_v:
    case kinds::scatter_v:
      return sum_of(counts, 0, self);
    default:
      return 0;
  }
}

std::string plain_case::text() const {
  std::string s = std::string{name_of(kind)} + " of " + std::to_string(count) + " × " +
                  std::string{name_of(type)} + ", " + std::string{name_of(op)} + ", " +
                  std::to_string(ranks) + " ranks, root " + std::to_string(root);
  for (const std::uint64_t n : counts) s += " " + std::to_string(n);
  for (const auto& row : pairs) {
    s += " |";
    for (const std::uint64_t n : row) s += " " + std::to_string(n);
  }
  return s;
}

std::string complaint(const plain_case& c, rank_t r, const std::byte* out, folds how) {
  const std::uint64_t elements = c.writes(r) ? c.out_count(r) : 0;
  const bool folded = c.op == reduction::sum || c.op == reduction::prod || c.op == reduction::avg ||
                      c.op == reduction::premul_sum;
  for (std::uint64_t i = 0; i < elements; ++i) {
    const origin o = origin_of(c, r, i);
    const std::byte* const got = out + i * size_of(c.type);
    std::string wrong;
    if (!reduces(c.kind)) {
      if (std::memcmp(got, input_of(c, o.first, o.index), size_of(c.type)) != 0) wrong = "another value";
    } else if (!is_float(c.type)) {
      std::uint64_t stored = 0;
      std::memcpy(&stored, got, size_of(c.type));
      const std::uint64_t expected = exact_integer(c, o);
      std::uint64_t cut = 0;
      std::memcpy(&cut, &expected, size_of(c.type));
      if (stored != cut) wrong = std::to_string(stored) + " instead of " + std::to_string(cut);
    } else {
      wrong = float_complaint(c, o, got, how);
      if (wrong.empty() && folded && how == folds::from_the_left_in_f32) wrong = fold_complaint(c, o, got);
    }
    if (!wrong.empty()) return "rank " + std::to_string(r) + ", element " + std::to_string(i) + ": " + wrong;
  }
  return {};
}

}  // namespace chorale::testing
