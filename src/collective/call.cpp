#include <chorale/collective/call.hpp>

#include <algorithm>
#include <limits>

namespace chorale {
namespace {

constexpr std::uint64_t too_many = std::numeric_limits<std::uint64_t>::max();

/// Elements of at most 8 bytes, so that a buffer's bytes stay below 2^60.
constexpr std::uint64_t most_elements = std::uint64_t{1} << 57;

std::string number_and_type(std::uint64_t count, dtype type) {
  return std::to_string(count) + " × " + std::string{name_of(type)};
}

std::uint64_t mixed(std::uint64_t h, std::uint64_t value) noexcept {
  h = (h ^ value) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 29);
}

std::uint64_t sum_of(std::span<const std::uint64_t> counts) noexcept {
  std::uint64_t sum = 0;
  for (const std::uint64_t c : counts) {
    if (c > most_elements || sum > most_elements) return too_many;
    sum += c;
  }
  return sum;
}

error bad(const call& c, std::string why) {
  return error{errc::invalid_argument, std::string{name_of(c.kind)} + ": " + std::move(why)};
}

template <class Check>
result<void> validate_message(const call& c, const Check& is_rank) {
  if (c.sending) {
    if (auto ok = is_rank("destination ", c.peer); !ok) return ok;
    if (c.tag < 0)
      return bad(c, "tag " + std::to_string(c.tag) + " of what is sent; tags are 0 and above" +
                        (c.tag == any_tag ? ", any_tag is for receives" : ""));
  }
  if (!c.receiving) return {};
  if (c.source != any_source)
    if (auto ok = is_rank("source ", c.source); !ok) return ok;
  if (c.receive_tag < 0 && c.receive_tag != any_tag)
    return bad(
        c, "tag " + std::to_string(c.receive_tag) + " of what is received; tags are 0 and above, or any_tag");
  if (c.room > most_elements) return bad(c, "the count is too large to be one");
  return {};
}

result<void> validate_ranks(const call& c, rank_t ranks) {
  const auto check = [&](const char* what, rank_t r) -> result<void> {
    if (r >= 0 && r < ranks) return {};
    return bad(c, std::string{what} + std::to_string(r) + " is not a rank of this communicator (0 to " +
                      std::to_string(ranks - 1) + ")");
  };
  if (c.kind == collective_kind::message) return validate_message(c, check);
  return has_root(c.kind) ? check("root ", c.root) : result<void>{};
}

result<void> validate_counts(const call& c, rank_t ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  if (has_counts(c.kind)) {
    if (!c.counts) return bad(c, "no counts were given; pass one per rank");
    const std::size_t given = c.counts->counts.size();
    const bool paired = c.kind == collective_kind::all_to_all_v;
    if (given != n || (paired && c.counts->arriving.size() != n))
      return bad(c, "there are " + std::to_string(given != n ? given : c.counts->arriving.size()) +
                        " counts for " + std::to_string(ranks) + " ranks; give one per rank");
    if (std::max(c.counts->total, c.counts->total_arriving) > most_elements)
      return bad(c, "the counts are too large to be counts");
  }
  if (c.count > most_elements / n) return bad(c, "the count is too large to be one");
  if (c.kind == collective_kind::all_to_all && c.count % n != 0)
    return bad(c, std::to_string(c.count) + " elements are no equal share for each of " +
                      std::to_string(ranks) + " ranks; pass a multiple, or use all_to_all_v");
  return {};
}

result<void> validate_reduction(const call& c) {
  if (!reduces(c.kind)) return {};
  if (c.op == reduction::none) return bad(c, "no operation was given");
  if (c.op == reduction::user && !c.user.combine)
    return bad(c, "the user's reduction has no function; make it with a name and a function");
  if (c.op == reduction::premul_sum && c.scalar_type != c.type)
    return bad(c, "premul_sum has a scalar of " + std::string{name_of(c.scalar_type)} + " for elements of " +
                      std::string{name_of(c.type)} + "; give both one type");
  if (c.op == reduction::avg && (c.kind == collective_kind::scan || c.kind == collective_kind::exscan))
    return bad(c, "an average over a growing number of ranks is not defined; use sum");
  return {};
}

struct buffer {
  const char* name;
  const std::byte* data;
  std::uint64_t given;
  std::uint64_t needed;
};

result<void> validate_buffer(const call& c, const buffer& b) {
  if (b.given != b.needed)
    return bad(c, std::string{"the "} + b.name + " has " + std::to_string(b.given) + " elements and needs " +
                      std::to_string(b.needed));
  const std::size_t size = size_of(c.type);
  if (b.needed == 0 || size == 0) return {};  // a barrier has no elements
  if (!b.data) return bad(c, std::string{"the "} + b.name + " is null but the count is not zero");
  if (reinterpret_cast<std::uintptr_t>(b.data) % size != 0)
    return bad(c, std::string{"the "} + b.name + " is not aligned to its elements of " +
                      std::to_string(size) + " bytes");
  return {};
}

result<void> validate_overlap(const call& c, const buffer_shape& s, rank_t rank, rank_t ranks) {
  if (!s.reads || !s.writes || s.in == 0 || s.out == 0) return {};
  const std::uint64_t size = size_of(c.type);
  const bool apart = c.in + s.in * size <= c.out || c.out + s.out * size <= c.in;
  if (apart) return {};
  if (c.kind == collective_kind::message)
    return bad(c, "what is sent and what is received overlap; pass two buffers");
  const bool exchanges = c.kind == collective_kind::all_to_all || c.kind == collective_kind::all_to_all_v;
  if (exchanges)
    return bad(c, "input and output overlap, and this collective has no in-place form; pass two buffers");
  if (in_place(c, rank, ranks)) return {};
  if (s.in_begins == 0 && s.out_begins == 0 && s.in == s.out)
    return bad(c, "input and output overlap; pass the same buffer for both, or two that are apart");
  return bad(c,
             "input and output overlap; in place, the smaller is this rank's own share of the larger, else "
             "they are apart");
}

result<void> validate_arguments(const call& c, rank_t rank, rank_t ranks) {
  if (c.kind == collective_kind::barrier) return {};
  if (auto ok = validate_ranks(c, ranks); !ok) return ok;
  if (auto ok = validate_counts(c, ranks); !ok) return ok;
  if (auto ok = validate_reduction(c); !ok) return ok;
  const buffer_shape s = shape_of(c, rank, ranks);
  if (s.reads)
    if (auto ok = validate_buffer(c, {"input", c.in, c.in_count, s.in}); !ok) return ok;
  if (s.writes)
    if (auto ok = validate_buffer(c, {"output", c.out, c.out_count, s.out}); !ok) return ok;
  return validate_overlap(c, s, rank, ranks);
}

}  // namespace

std::string_view name_of(collective_kind kind) noexcept {
  constexpr std::string_view names[collective_kinds] = {
      "unknown",          "all_reduce",   "send/recv", "barrier",   "reduce", "broadcast", "all_gather",
      "reduce_scatter",   "all_to_all",   "gather",    "scatter",   "scan",   "exscan",    "all_gather_v",
      "reduce_scatter_v", "all_to_all_v", "gather_v",  "scatter_v", "split",  "window"};
  const auto index = static_cast<std::size_t>(kind);
  return index < collective_kinds ? names[index] : "unknown";
}

bool reduces(collective_kind kind) noexcept {
  switch (kind) {
    case collective_kind::all_reduce:
    case collective_kind::reduce:
    case collective_kind::reduce_scatter:
    case collective_kind::reduce_scatter_v:
    case collective_kind::scan:
    case collective_kind::exscan:
      return true;
    default:
      return false;
  }
}

bool has_root(collective_kind kind) noexcept {
  switch (kind) {
    case collective_kind::reduce:
    case collective_kind::broadcast:
    case collective_kind::gather:
    case collective_kind::scatter:
    case collective_kind::gather_v:
    case collective_kind::scatter_v:
      return true;
    default:
      return false;
  }
}

bool has_counts(collective_kind kind) noexcept {
  return kind >= collective_kind::all_gather_v && kind <= collective_kind::scatter_v;
}

std::shared_ptr<const count_table> make_count_table(std::span<const std::uint64_t> counts,
                                                    std::span<const std::uint64_t> arriving) {
  auto made = std::make_shared<count_table>();
  made->counts.assign(counts.begin(), counts.end());
  made->arriving.assign(arriving.begin(), arriving.end());
  made->total = sum_of(counts);
  made->total_arriving = sum_of(arriving);
  made->hash = mixed(0xcbf29ce484222325u, counts.size());
  for (const std::uint64_t c : counts) made->hash = mixed(made->hash, c);
  made->hash |= 1;  // 0 stands for no table
  return made;
}

buffer_shape shape_of(const call& c, rank_t rank, rank_t ranks) noexcept {
  const auto n = static_cast<std::uint64_t>(ranks);
  const auto self = static_cast<std::size_t>(rank);
  const bool at_root = rank == c.root;
  const std::uint64_t before = c.counts && c.kind != collective_kind::all_to_all_v
                                   ? count_table::before(c.counts->counts, self)
                                   : self * c.count;
  const std::uint64_t own = c.counts ? c.counts->counts[self] : c.count;
  const std::uint64_t all = c.counts ? c.count : n * c.count;
  switch (c.kind) {
    case collective_kind::none:
    case collective_kind::barrier:
      return {};
    case collective_kind::message:
      return {c.sending, c.receiving, c.count, c.room};
    case collective_kind::all_reduce:
    case collective_kind::scan:
    case collective_kind::exscan:
    case collective_kind::all_to_all:
      return {true, true, c.count, c.count};
    case collective_kind::reduce:
      return {true, at_root, c.count, c.count};
    case collective_kind::broadcast:
      return {at_root, true, c.count, c.count};
    case collective_kind::all_gather:
    case collective_kind::all_gather_v:
    case collective_kind::split:
    case collective_kind::window:
      return {true, true, own, all, before, 0};
    case collective_kind::reduce_scatter:
    case collective_kind::reduce_scatter_v:
      return {true, true, all, own, 0, before};
    case collective_kind::gather:
    case collective_kind::gather_v:
      return {true, at_root, own, all, before, 0};
    case collective_kind::scatter:
    case collective_kind::scatter_v:
      return {at_root, true, all, own, 0, before};
    case collective_kind::all_to_all_v:
      return {true, true, c.counts->total, c.counts->total_arriving};
  }
  return {};
}

bool in_place(const call& c, rank_t rank, rank_t ranks) noexcept {
  const buffer_shape s = shape_of(c, rank, ranks);
  if (!s.reads || !s.writes || !c.in || !c.out) return false;
  const auto size = static_cast<std::uint64_t>(size_of(c.type));
  return reinterpret_cast<std::uintptr_t>(c.in) - s.in_begins * size ==
         reinterpret_cast<std::uintptr_t>(c.out) - s.out_begins * size;
}

bool is_same(const call& a, const call& b) noexcept {
  return a.in == b.in && a.out == b.out && a.count == b.count && a.kind == b.kind && a.type == b.type &&
         a.op == b.op && a.scalar_type == b.scalar_type && a.root == b.root && a.in_count == b.in_count &&
         a.out_count == b.out_count && a.counts == b.counts && a.user == b.user &&
         a.on_device == b.on_device && a.kind != collective_kind::message && a.kind != collective_kind::none;
}

signature sent_signature(const call& c) noexcept {
  signature s;
  s.kind = static_cast<std::uint8_t>(collective_kind::message);
  s.dtype = static_cast<std::uint8_t>(c.type);
  s.flags = message_sent;
  s.root = static_cast<std::uint32_t>(c.tag);
  s.count = c.count;
  return s;
}

signature received_signature(const call& c) noexcept {
  signature s;
  s.kind = static_cast<std::uint8_t>(collective_kind::message);
  s.dtype = static_cast<std::uint8_t>(c.type);
  const bool any = c.receive_tag == any_tag;
  s.flags = any ? message_received | message_of_any_tag : message_received;
  s.root = any ? 0 : static_cast<std::uint32_t>(c.receive_tag);
  s.count = c.room;
  return s;
}

signature signature_of(const call& c) noexcept {
  if (c.kind == collective_kind::message) return c.sending ? sent_signature(c) : received_signature(c);
  signature s;
  s.kind = static_cast<std::uint8_t>(c.kind);
  s.dtype = static_cast<std::uint8_t>(c.type);
  s.op = static_cast<std::uint8_t>(c.op);
  s.root = static_cast<std::uint32_t>(c.root);
  s.count = c.kind == collective_kind::all_to_all_v ? 0 : c.count;
  if (c.counts && c.kind != collective_kind::all_to_all_v) s.hash = c.counts->hash;
  if (c.op == reduction::user) s.hash = s.hash == 0 ? c.user.hash : mixed(s.hash, c.user.hash) | 1;
  return s;
}

signature signature_between(const signature& whole, const count_table* counts, rank_t me,
                            rank_t peer) noexcept {
  if (static_cast<collective_kind>(whole.kind) != collective_kind::all_to_all_v || !counts) return whole;
  const auto other = static_cast<std::size_t>(peer);
  const std::uint64_t going = counts->counts[other];
  const std::uint64_t coming = counts->arriving[other];
  signature s = whole;
  s.count = me < peer ? going : coming;
  s.hash = me < peer ? coming : going;
  return s;
}

namespace {

std::string describe_message(const signature& s) {
  const bool sent = s.flags == message_sent;
  std::string text = sent ? "send of " : "recv of up to ";
  text += number_and_type(s.count, static_cast<dtype>(s.dtype));
  if ((s.flags & message_of_any_tag) != 0) return text + ", any tag";
  return s.root == 0 ? text : text + ", tag " + std::to_string(s.root);
}

}  // namespace

std::string describe(const signature& s) {
  const auto kind = static_cast<collective_kind>(s.kind);
  if (kind == collective_kind::message) return describe_message(s);
  std::string text{name_of(kind)};
  if (kind == collective_kind::barrier) return text;
  const auto type = static_cast<dtype>(s.dtype);
  text += " of " + number_and_type(s.count, type);
  const auto code = [&] {
    constexpr char digits[] = "0123456789abcdef";
    std::string hex = "#";
    for (int shift = 60; shift >= 32; shift -= 4) hex += digits[(s.hash >> shift) & 15];
    return hex;
  };
  switch (kind) {
    case collective_kind::all_gather:
    case collective_kind::reduce_scatter:
    case collective_kind::gather:
    case collective_kind::scatter:
      text += " a rank";
      break;
    case collective_kind::all_to_all_v:
      text += " to the higher rank and " + std::to_string(s.hash) + " to the lower";
      break;
    default:
      break;
  }
  if (has_counts(kind) && kind != collective_kind::all_to_all_v) text += " in counts " + code();
  if (reduces(kind)) {
    text += ", " + std::string{name_of(static_cast<reduction>(s.op))};
    if (static_cast<reduction>(s.op) == reduction::user && !has_counts(kind)) text += " " + code();
  }
  if (has_root(kind)) text += ", root " + std::to_string(s.root);
  return text;
}

result<void> validate(const call& c, rank_t rank, rank_t ranks) {
  if (c.on_device)
    return bad(
        c,
        "the buffers are a GPU's; call it on a communicator with chorale::on(stream) behind the arguments");
  return validate_arguments(c, rank, ranks);
}

result<void> validate_on_stream(const call& c, rank_t rank, rank_t ranks) {
  if (!c.on_device && c.kind != collective_kind::barrier)
    return bad(c, "a stream was given for buffers of the host; leave it out, or pass chorale::device_span");
  return validate_arguments(c, rank, ranks);
}

}  // namespace chorale
