#include <chorale/collective/call.hpp>

#include <limits>

namespace chorale {

std::string_view name_of(collective_kind kind) noexcept {
  switch (kind) {
    case collective_kind::none:
      break;
    case collective_kind::all_reduce:
      return "all_reduce";
    case collective_kind::message:
      return "send/recv";
    case collective_kind::barrier:
      return "barrier";
  }
  return "unknown";
}

signature signature_of(const call& c) noexcept {
  signature s;
  s.kind = static_cast<std::uint8_t>(c.kind);
  s.dtype = static_cast<std::uint8_t>(c.type);
  s.op = static_cast<std::uint8_t>(c.op);
  s.count = c.count;
  return s;
}

std::string describe(const signature& s) {
  const auto kind = static_cast<collective_kind>(s.kind);
  std::string text{name_of(kind)};
  if (kind == collective_kind::barrier) return text;
  text += " of " + std::to_string(s.count) + " × " + std::string{name_of(static_cast<dtype>(s.dtype))};
  if (kind == collective_kind::all_reduce) text += ", " + std::string{name_of(static_cast<reduction>(s.op))};
  return text;
}

result<void> validate(const call& c, rank_t rank, rank_t ranks) {
  const auto bad = [&](std::string why) {
    return error{errc::invalid_argument, std::string{name_of(c.kind)} + ": " + std::move(why)};
  };
  if (c.kind == collective_kind::message) {
    if (c.peer < 0 || c.peer >= ranks)
      return bad("peer " + std::to_string(c.peer) + " is not a rank of this communicator (0 to " +
                 std::to_string(ranks - 1) + ")");
    if (c.peer == rank) return bad("a rank cannot exchange messages with itself; copy the buffer");
  }
  if (c.kind == collective_kind::barrier || c.count == 0) return {};
  if (c.count > std::numeric_limits<std::uint64_t>::max() / 16)
    return bad("the count is too large to be one");
  const bool reads = c.kind == collective_kind::all_reduce || c.sending;
  const bool writes = c.kind == collective_kind::all_reduce || !c.sending;
  if ((reads && !c.in) || (writes && !c.out)) return bad("a buffer is null but the count is not zero");
  const auto misaligned = [&](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % size_of(c.type) != 0;
  };
  if ((reads && misaligned(c.in)) || (writes && misaligned(c.out)))
    return bad("a buffer is not aligned to its elements of " + std::to_string(size_of(c.type)) + " bytes");
  if (reads && writes && c.in != c.out && c.in < c.out + c.bytes() && c.out < c.in + c.bytes())
    return bad("input and output overlap; pass the same buffer for both, or two that are apart");
  return {};
}

}  // namespace chorale
