#include <chorale/kernels/exchange_call.hpp>

#include <algorithm>
#include <string>

namespace chorale::cuda {
namespace {

/// Of a buffer or message: bytes stay below 2^56.
constexpr std::uint64_t most_elements = std::uint64_t{1} << 52;

std::size_t index(rank_t r) noexcept { return static_cast<std::size_t>(r); }
std::byte* at(const void* base, std::uint64_t offset) noexcept {
  return base == nullptr ? nullptr : const_cast<std::byte*>(static_cast<const std::byte*>(base)) + offset;
}
std::uint8_t bit(rank_t r) noexcept { return static_cast<std::uint8_t>(1u << r); }
std::uint8_t everybody_else(place_in_group p) noexcept {
  return static_cast<std::uint8_t>(((1u << p.size) - 1) & ~(1u << p.rank));
}
/// Collectives with a root concern the root and each other rank.
std::uint8_t root_and_others(place_in_group p, rank_t root) noexcept {
  return p.rank == root ? everybody_else(p) : bit(root);
}

exchange_call made(exchange_kind kind, dtype type, std::uint64_t count, std::uint8_t peers) {
  exchange_call c;
  c.kind = kind;
  c.type = type;
  c.count = count;
  c.peers = peers;
  return c;
}
exchange_call made_fold(exchange_kind kind, const reduction_of& how, std::uint64_t count,
                        std::uint8_t peers) {
  exchange_call c = made(kind, how.type, count, peers);
  c.op = how.op;
  c.scalar = how.scalar;
  c.folds = true;
  return c;
}

result<void> check_root(exchange_kind kind, place_in_group p, rank_t root) {
  if (root >= 0 && root < p.size) return {};
  return error{errc::invalid_argument, std::string{name_of(kind)} + ": root " + std::to_string(root) +
                                           " is not a rank of this group (0 to " +
                                           std::to_string(p.size - 1) + ")"};
}

/// Where each rank's share of a packed buffer lies, in bytes.
struct share_table {
  std::array<std::uint64_t, kernels::max_ranks> begin{};
  std::array<std::uint64_t, kernels::max_ranks> bytes{};
  std::uint64_t largest = 0;
  std::uint64_t total = 0;  ///< elements
  std::uint64_t hash = 0;
};
result<share_table> shares_of(exchange_kind kind, place_in_group p, counts_by_rank counts, dtype type) {
  if (counts.size() != static_cast<std::size_t>(p.size))
    return error{errc::invalid_argument, std::string{name_of(kind)} + ": there are " +
                                             std::to_string(counts.size()) + " counts for " +
                                             std::to_string(p.size) + " ranks; give one per rank"};
  share_table t;
  t.hash = 0xcbf29ce484222325u;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] > most_elements || t.total > most_elements)
      return error{errc::invalid_argument,
                   std::string{name_of(kind)} + ": the counts are too large to be counts"};
    t.begin[r] = t.total * size_of(type);
    t.bytes[r] = counts[r] * size_of(type);
    t.total += counts[r];
    t.largest = std::max(t.largest, t.bytes[r]);
    t.hash = (t.hash ^ counts[r]) * 0x9e3779b97f4a7c15u;
    t.hash ^= t.hash >> 29;
  }
  return t;
}
share_table equal_shares(place_in_group p, std::uint64_t count, dtype type) {
  share_table t;
  t.largest = count * size_of(type);
  t.total = count;
  for (std::size_t r = 0; r < index(p.size); ++r) {
    t.begin[r] = r * t.largest;
    t.bytes[r] = t.largest;
  }
  return t;
}

void describe_shares(exchange_call& c, const share_table& t) {
  c.count = t.total;
  c.hash = t.hash;
  c.largest = t.largest;
}
exchange_call gathering(exchange_kind kind, place_in_group p, const void* in, void* out, const share_table& t,
                        dtype type) {
  exchange_call c = made(kind, type, 0, everybody_else(p));
  describe_shares(c, t);
  for (std::size_t r = 0; r < index(p.size); ++r) {
    c.send[r] = {at(in, 0), t.bytes[index(p.rank)]};
    c.receive[r] = {at(out, t.begin[r]), t.bytes[r]};
  }
  return c;
}
exchange_call reducing(exchange_kind kind, place_in_group p, const void* in, void* out, const share_table& t,
                       const reduction_of& how) {
  exchange_call c = made_fold(kind, how, 0, everybody_else(p));
  describe_shares(c, t);
  for (std::size_t r = 0; r < index(p.size); ++r) c.send[r] = {at(in, t.begin[r]), t.bytes[r]};
  c.receive[index(p.rank)] = {at(out, 0), t.bytes[index(p.rank)]};
  return c;
}
exchange_call gathering_at(exchange_kind kind, place_in_group p, const void* in, void* out,
                           const share_table& t, dtype type, rank_t root) {
  exchange_call c = made(kind, type, 0, root_and_others(p, root));
  describe_shares(c, t);
  c.root = root;
  c.send[index(root)] = {at(in, 0), t.bytes[index(p.rank)]};
  if (p.rank == root)
    for (std::size_t r = 0; r < index(p.size); ++r) c.receive[r] = {at(out, t.begin[r]), t.bytes[r]};
  return c;
}
exchange_call scattering_from(exchange_kind kind, place_in_group p, const void* in, void* out,
                              const share_table& t, dtype type, rank_t root) {
  exchange_call c = made(kind, type, 0, root_and_others(p, root));
  describe_shares(c, t);
  c.root = root;
  if (p.rank == root)
    for (std::size_t r = 0; r < index(p.size); ++r) c.send[r] = {at(in, t.begin[r]), t.bytes[r]};
  c.receive[index(root)] = {at(out, 0), t.bytes[index(p.rank)]};
  return c;
}

}  // namespace

std::string_view name_of(exchange_kind kind) noexcept {
  constexpr std::string_view names[] = {
      "unknown",    "all_reduce",     "send/recv",        "barrier",      "reduce",   "broadcast",
      "all_gather", "reduce_scatter", "all_to_all",       "gather",       "scatter",  "scan",
      "exscan",     "all_gather_v",   "reduce_scatter_v", "all_to_all_v", "gather_v", "scatter_v"};
  const auto i = static_cast<std::size_t>(kind);
  return i < std::size(names) ? names[i] : "unknown";
}

exchange_call all_reduce_call(place_in_group p, const void* in, void* out, std::uint64_t count,
                              const reduction_of& how) {
  exchange_call c = made_fold(exchange_kind::all_reduce, how, count, everybody_else(p));
  c.largest = count * size_of(how.type);
  for (std::size_t r = 0; r < index(p.size); ++r) c.send[r] = {at(in, 0), c.largest};
  c.receive[index(p.rank)] = {at(out, 0), c.largest};
  return c;
}

result<exchange_call> reduce_call(place_in_group p, const void* in, void* out, std::uint64_t count,
                                  const reduction_of& how, rank_t root) {
  if (auto r = check_root(exchange_kind::reduce, p, root); !r) return std::move(r).error();
  exchange_call c = made_fold(exchange_kind::reduce, how, count, root_and_others(p, root));
  c.root = root;
  c.largest = count * size_of(how.type);
  c.send[index(root)] = {at(in, 0), c.largest};
  if (p.rank == root) c.receive[index(root)] = {at(out, 0), c.largest};
  return c;
}

result<exchange_call> broadcast_call(place_in_group p, const void* in, void* out, std::uint64_t count,
                                     dtype type, rank_t root) {
  if (auto r = check_root(exchange_kind::broadcast, p, root); !r) return std::move(r).error();
  exchange_call c = made(exchange_kind::broadcast, type, count, root_and_others(p, root));
  c.root = root;
  c.largest = count * size_of(type);
  if (p.rank == root) {
    for (std::size_t r = 0; r < index(p.size); ++r) c.send[r] = {at(in, 0), c.largest};
    if (out != in && out != nullptr) c.receive[index(root)] = {at(out, 0), c.largest};
  } else {
    c.receive[index(root)] = {at(out, 0), c.largest};
  }
  return c;
}

exchange_call all_gather_call(place_in_group p, const void* in, void* out, std::uint64_t count, dtype type) {
  return gathering(exchange_kind::all_gather, p, in, out, equal_shares(p, count, type), type);
}
exchange_call reduce_scatter_call(place_in_group p, const void* in, void* out, std::uint64_t count,
                                  const reduction_of& how) {
  return reducing(exchange_kind::reduce_scatter, p, in, out, equal_shares(p, count, how.type), how);
}
exchange_call all_to_all_call(place_in_group p, const void* in, void* out, std::uint64_t count, dtype type) {
  const share_table t = equal_shares(p, count, type);
  exchange_call c = made(exchange_kind::all_to_all, type, 0, everybody_else(p));
  describe_shares(c, t);
  for (std::size_t r = 0; r < index(p.size); ++r) {
    c.send[r] = {at(in, t.begin[r]), t.bytes[r]};
    c.receive[r] = {at(out, t.begin[r]), t.bytes[r]};
  }
  return c;
}
result<exchange_call> gather_call(place_in_group p, const void* in, void* out, std::uint64_t count,
                                  dtype type, rank_t root) {
  if (auto r = check_root(exchange_kind::gather, p, root); !r) return std::move(r).error();
  return gathering_at(exchange_kind::gather, p, in, out, equal_shares(p, count, type), type, root);
}
result<exchange_call> scatter_call(place_in_group p, const void* in, void* out, std::uint64_t count,
                                   dtype type, rank_t root) {
  if (auto r = check_root(exchange_kind::scatter, p, root); !r) return std::move(r).error();
  return scattering_from(exchange_kind::scatter, p, in, out, equal_shares(p, count, type), type, root);
}

result<exchange_call> all_gather_v_call(place_in_group p, const void* in, void* out, counts_by_rank counts,
                                        dtype type) {
  auto t = shares_of(exchange_kind::all_gather_v, p, counts, type);
  if (!t) return std::move(t).error();
  return gathering(exchange_kind::all_gather_v, p, in, out, *t, type);
}
result<exchange_call> reduce_scatter_v_call(place_in_group p, const void* in, void* out,
                                            counts_by_rank counts, const reduction_of& how) {
  auto t = shares_of(exchange_kind::reduce_scatter_v, p, counts, how.type);
  if (!t) return std::move(t).error();
  return reducing(exchange_kind::reduce_scatter_v, p, in, out, *t, how);
}
result<exchange_call> gather_v_call(place_in_group p, const void* in, void* out, counts_by_rank counts,
                                    dtype type, rank_t root) {
  if (auto r = check_root(exchange_kind::gather_v, p, root); !r) return std::move(r).error();
  auto t = shares_of(exchange_kind::gather_v, p, counts, type);
  if (!t) return std::move(t).error();
  return gathering_at(exchange_kind::gather_v, p, in, out, *t, type, root);
}
result<exchange_call> scatter_v_call(place_in_group p, const void* in, void* out, counts_by_rank counts,
                                     dtype type, rank_t root) {
  if (auto r = check_root(exchange_kind::scatter_v, p, root); !r) return std::move(r).error();
  auto t = shares_of(exchange_kind::scatter_v, p, counts, type);
  if (!t) return std::move(t).error();
  return scattering_from(exchange_kind::scatter_v, p, in, out, *t, type, root);
}
result<exchange_call> all_to_all_v_call(place_in_group p, const void* in, counts_by_rank sent, void* out,
                                        counts_by_rank received, dtype type) {
  auto leaving = shares_of(exchange_kind::all_to_all_v, p, sent, type);
  if (!leaving) return std::move(leaving).error();
  auto arriving = shares_of(exchange_kind::all_to_all_v, p, received, type);
  if (!arriving) return std::move(arriving).error();
  const std::size_t own = index(p.rank);
  if (sent[own] != received[own])
    return error{errc::invalid_argument, "all_to_all_v: this rank sends itself " + std::to_string(sent[own]) +
                                             " elements and expects " + std::to_string(received[own]) +
                                             " from itself; both counts are the same"};
  exchange_call c = made(exchange_kind::all_to_all_v, type, 0, everybody_else(p));
  for (std::size_t r = 0; r < index(p.size); ++r) {
    c.send[r] = {at(in, leaving->begin[r]), leaving->bytes[r]};
    c.receive[r] = {at(out, arriving->begin[r]), arriving->bytes[r]};
  }
  return c;
}

result<exchange_call> messages_call(place_in_group p, std::span<const message> messages) {
  exchange_call c = made(exchange_kind::messages, dtype::u8, 0, 0);
  std::uint8_t sent = 0;
  std::uint8_t received = 0;
  for (const message& m : messages) {
    const auto refuse = [&](const std::string& why) {
      return error{errc::invalid_argument, std::string{m.sending ? "send to rank " : "recv from rank "} +
                                               std::to_string(m.peer) + ": " + why};
    };
    if (m.peer < 0 || m.peer >= p.size)
      return refuse("it is not a rank of this group (0 to " + std::to_string(p.size - 1) + ")");
    if (size_of(m.type) == 0) return refuse("this is no element type; name one of dtype");
    if (m.count > most_elements) return refuse("the count is too large to be one");
    const void* data = m.sending ? m.send : m.receive;
    if (m.count != 0 && reinterpret_cast<std::uintptr_t>(data) % size_of(m.type) != 0)
      return refuse("the buffer is not aligned to its elements of " + std::to_string(size_of(m.type)) +
                    " bytes");
    std::uint8_t& taken = m.sending ? sent : received;
    if ((taken & bit(m.peer)) != 0)
      return refuse(
          "there is another message that way in this batch; make a batch of each, in the same order on "
          "both ranks");
    taken |= bit(m.peer);
    (m.sending ? c.send : c.receive)[index(m.peer)] = {at(data, 0), m.count * size_of(m.type)};
    (m.sending ? c.send_types : c.receive_types)[index(m.peer)] = m.type;
    if (m.peer != p.rank) c.peers |= bit(m.peer);
  }
  const std::size_t own = index(p.rank);
  if (((sent ^ received) & bit(p.rank)) != 0 || c.send[own].bytes != c.receive[own].bytes)
    return error{errc::invalid_argument,
                 "a message of rank " + std::to_string(p.rank) +
                     " to itself needs its send and its recv, of equal length, in one batch",
                 p.rank};
  return c;
}

exchange_call barrier_call(place_in_group p) {
  return made(exchange_kind::barrier, dtype::u8, 0, everybody_else(p));
}

}  // namespace chorale::cuda
