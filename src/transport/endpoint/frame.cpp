#include <chorale/transport/endpoint/frame.hpp>

namespace chorale::endpoints {
namespace {

template <class T>
void store(std::byte* at, T value) noexcept {
  for (std::size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

template <class T>
T load(const std::byte* at) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<std::uint64_t>(at[i]) << (8 * i);
  return static_cast<T>(value);
}

}  // namespace

std::array<std::byte, header_bytes> encode(const frame_header& h) noexcept {
  std::array<std::byte, header_bytes> out{};
  out[0] = static_cast<std::byte>(h.kind);
  out[1] = static_cast<std::byte>(h.version);
  out[2] = static_cast<std::byte>(h.element);
  out[3] = static_cast<std::byte>(h.dimensions);
  store(&out[4], h.head);
  store(&out[6], h.code);
  store(&out[8], h.size);
  store(&out[16], h.tag);
  store(&out[24], h.id);
  return out;
}

frame_header decode(std::span<const std::byte, header_bytes> bytes) noexcept {
  frame_header h;
  h.kind = static_cast<frame_kind>(bytes[0]);
  h.version = std::to_integer<std::uint8_t>(bytes[1]);
  h.element = std::to_integer<std::uint8_t>(bytes[2]);
  h.dimensions = std::to_integer<std::uint8_t>(bytes[3]);
  h.head = load<std::uint16_t>(&bytes[4]);
  h.code = load<std::uint16_t>(&bytes[6]);
  h.size = load<std::uint64_t>(&bytes[8]);
  h.tag = load<std::uint64_t>(&bytes[16]);
  h.id = load<std::uint64_t>(&bytes[24]);
  return h;
}

const char* fault_of(const frame_header& h, std::uint64_t room) noexcept {
  if (h.version != frame_version) return "a frame of another version";
  if (h.kind == frame_kind::open) return "a second open frame";
  if (h.kind == frame_kind::bye || h.kind == frame_kind::credit)
    return h.size != 0 || h.head != 0 || h.dimensions != 0 ? "a control frame with a body" : nullptr;
  if (!carries_body(h.kind)) return "a frame of unknown kind";
  if (h.dimensions > most_dimensions) return "a tensor of more than 8 dimensions";
  if (h.element == 0 && h.dimensions != 0) return "a shape without an element type";
  if (h.kind == frame_kind::refusal && (h.size != 0 || h.dimensions != 0 || h.head > longest_refusal))
    return "a refusal that is more than a text";
  if (h.kind != frame_kind::message && h.id == 0) return "a request or answer without a number";
  if (h.size > room || cost_of(h) > room) return "more bytes than the window had room for";
  return nullptr;
}

}  // namespace chorale::endpoints
