// The frames between two endpoints: a header of 32 bytes, then a shape, a head and values.
//
// Pure functions over bytes; docs/wire.md has every field. A header is judged before anything is allocated
// for what it announces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chorale::endpoints {

enum class frame_kind : std::uint8_t {
  open = 1,     ///< first frame of either side: tag = bytes it receives unread, head = its name
  message = 2,  ///< a message
  request = 3,  ///< a message that wants an answer; id chosen by the caller
  reply = 4,    ///< the answer to request `id`
  refusal = 5,  ///< no answer to request `id`: code and, as head, a text
  credit = 6,   ///< tag bytes of message window and id bytes of reply window come back
  bye = 7,      ///< nothing more will come; code says why, 0 in good order
};

inline constexpr std::uint8_t frame_version = 1;
inline constexpr std::size_t header_bytes = 32;
inline constexpr std::size_t most_dimensions = 8;
inline constexpr std::size_t longest_name = 255;
inline constexpr std::size_t longest_refusal = 1024;
/// What a frame weighs besides its bytes: bounds what bookkeeping for many small ones can take.
inline constexpr std::uint64_t frame_overhead = 256;
inline constexpr std::uint64_t least_window = 16 * 1024;

/// Messages and requests share one window, replies and refusals have the other, so that unread messages never
/// keep an answer away.
enum class window_kind : std::uint8_t { messages = 0, replies = 1 };
inline constexpr std::size_t window_kinds = 2;

struct frame_header {
  frame_kind kind{};
  std::uint8_t version = frame_version;
  std::uint8_t element = 0;  ///< dtype; 0: plain bytes
  std::uint8_t dimensions = 0;
  std::uint16_t head = 0;  ///< bytes of the head
  std::uint16_t code = 0;  ///< refusal, bye: an errc
  std::uint64_t size = 0;  ///< bytes of the values
  std::uint64_t tag = 0;
  std::uint64_t id = 0;
};

[[nodiscard]] std::array<std::byte, header_bytes> encode(const frame_header& h) noexcept;
[[nodiscard]] frame_header decode(std::span<const std::byte, header_bytes> bytes) noexcept;

[[nodiscard]] constexpr bool carries_body(frame_kind kind) noexcept {
  return kind >= frame_kind::message && kind <= frame_kind::refusal;
}
[[nodiscard]] constexpr window_kind window_of(frame_kind kind) noexcept {
  return kind == frame_kind::reply || kind == frame_kind::refusal ? window_kind::replies
                                                                  : window_kind::messages;
}
/// Bytes of shape and head, which precede the values.
[[nodiscard]] constexpr std::size_t preamble_bytes(const frame_header& h) noexcept {
  return std::size_t{8} * h.dimensions + h.head;
}
/// What the frame takes of its window. Precondition: `size` is no more than a window.
[[nodiscard]] constexpr std::uint64_t cost_of(const frame_header& h) noexcept {
  return frame_overhead + preamble_bytes(h) + h.size;
}

/// Why no correct peer sends this after its open frame; null if it may. `room` is what is left of the
/// frame's window.
[[nodiscard]] const char* fault_of(const frame_header& h, std::uint64_t room) noexcept;

}  // namespace chorale::endpoints
