#include <chorale/transport/guard/frame.hpp>

#include <type_traits>

namespace chorale::guarding {
namespace {

constexpr std::uint16_t frame_magic = 0x4743;
constexpr std::uint8_t frame_version = 1;

template <class Unsigned>
void put(frame_bytes& bytes, std::size_t at, Unsigned value) noexcept {
  static_assert(std::is_unsigned_v<Unsigned>);
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
    bytes[at + i] = static_cast<std::byte>((std::uint64_t{value} >> (8 * i)) & 0xff);
}

template <class Unsigned>
Unsigned get(const frame_bytes& bytes, std::size_t at) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
    value |= std::uint64_t{std::to_integer<std::uint8_t>(bytes[at + i])} << (8 * i);
  return static_cast<Unsigned>(value);
}

void put_signed(frame_bytes& bytes, std::size_t at, std::int32_t value) noexcept {
  put(bytes, at, static_cast<std::uint32_t>(value));
}
std::int32_t get_signed(const frame_bytes& bytes, std::size_t at) noexcept {
  return static_cast<std::int32_t>(get<std::uint32_t>(bytes, at));
}

bool known(const frame& f) noexcept {
  const auto kind = static_cast<unsigned>(f.kind);
  return kind >= 1 && kind <= 6 && f.scope <= revoke_scope::lane && f.call <= call_state::finished &&
         name_of(f.cause) != "unknown";
}

}  // namespace

frame_bytes encode(const frame& f) noexcept {
  frame_bytes bytes{};
  put(bytes, 0, frame_magic);
  put(bytes, 2, frame_version);
  put(bytes, 3, static_cast<std::uint8_t>(f.kind));
  put_signed(bytes, 4, f.origin);
  put_signed(bytes, 8, f.target);
  put(bytes, 12, f.sequence);
  put(bytes, 16, f.nonce);
  put(bytes, 24, f.epoch);
  put(bytes, 32, f.lane);
  put(bytes, 40, f.ticket);
  put_signed(bytes, 48, static_cast<std::int32_t>(f.cause));
  put_signed(bytes, 52, f.culprit);
  put_signed(bytes, 56, f.detail);
  put(bytes, 60, static_cast<std::uint8_t>(f.scope));
  put(bytes, 61, f.attempt);
  put(bytes, 62, f.hops);
  put(bytes, 63, static_cast<std::uint8_t>(f.call));
  return bytes;
}

std::optional<frame> decode(const frame_bytes& bytes) noexcept {
  if (get<std::uint16_t>(bytes, 0) != frame_magic || get<std::uint8_t>(bytes, 2) != frame_version)
    return std::nullopt;
  frame f;
  f.kind = static_cast<frame_kind>(get<std::uint8_t>(bytes, 3));
  f.origin = get_signed(bytes, 4);
  f.target = get_signed(bytes, 8);
  f.sequence = get<std::uint32_t>(bytes, 12);
  f.nonce = get<std::uint64_t>(bytes, 16);
  f.epoch = get<std::uint64_t>(bytes, 24);
  f.lane = get<std::uint64_t>(bytes, 32);
  f.ticket = get<std::uint64_t>(bytes, 40);
  f.cause = static_cast<errc>(get_signed(bytes, 48));
  f.culprit = get_signed(bytes, 52);
  f.detail = get_signed(bytes, 56);
  f.scope = static_cast<revoke_scope>(get<std::uint8_t>(bytes, 60));
  f.attempt = get<std::uint8_t>(bytes, 61);
  f.hops = get<std::uint8_t>(bytes, 62);
  f.call = static_cast<call_state>(get<std::uint8_t>(bytes, 63));
  if (!known(f)) return std::nullopt;
  return f;
}

}  // namespace chorale::guarding
