// The bytes between two ranks: a 64-byte header, then its payload. Little-endian; docs/wire.md has the table.
//
// A message is named by {lane, ticket, channel, sequence}. Up to `eager_limit` it travels at once, while the
// sender holds budget for memory at the receiver. A longer one waits until the receiver has said `ready`,
// which it does as soon as it is called; a sender that is there first announces itself with a bare header, so
// that signatures meet even when the receiver waits for something else. Then come `data` frames, in order.
#pragma once

#include <chorale/transport/signature.hpp>

#include <cstddef>
#include <cstdint>

namespace chorale {

/// Longest message sent without asking.
inline constexpr std::uint64_t eager_limit = 8 * 1024;
/// Memory for messages that arrive before their call, per directed pair.
inline constexpr std::uint64_t eager_budget = 512 * 1024;
/// Longest payload of one `data` frame.
inline constexpr std::uint64_t frame_limit = 256 * 1024;
/// Longest payload of one `window` frame: two of them, with headers, fit the smallest ring of shared memory.
inline constexpr std::uint64_t window_frame_limit = 64 * 1024 - 64;
/// Payloads are padded to this, so that headers and elements stay aligned in every buffer.
inline constexpr std::uint64_t frame_alignment = 64;

enum class frame_kind : std::uint8_t {
  eager = 1,        ///< a whole message
  announce = 2,     ///< a message of `size` bytes waits for `ready`
  ready = 3,        ///< the receiver of that message takes it now
  data = 4,         ///< the next `size` bytes of it
  credit = 5,       ///< `size` bytes of eager budget come back
  lane_revoke = 6,  ///< a lane ended: the payload says why
  window = 7,       ///< one-sided access, see window_frame.hpp
};

struct message_key {
  std::uint64_t lane = 0;
  std::uint64_t ticket = 0;
  std::uint32_t sequence = 0;
  std::uint16_t channel = 0;
  friend bool operator==(const message_key&, const message_key&) = default;
};

struct alignas(64) frame_header {
  std::uint64_t lane = 0;
  std::uint64_t ticket = 0;
  std::uint64_t size = 0;
  std::uint32_t sequence = 0;
  std::uint16_t channel = 0;
  frame_kind kind = frame_kind::eager;
  std::uint8_t version = 1;
  signature call;

  [[nodiscard]] message_key key() const noexcept { return {lane, ticket, sequence, channel}; }
  void set_key(const message_key& k) noexcept {
    lane = k.lane;
    ticket = k.ticket;
    sequence = k.sequence;
    channel = k.channel;
  }
};
static_assert(sizeof(frame_header) == 64);

[[nodiscard]] constexpr bool carries_payload(frame_kind kind) noexcept {
  return kind == frame_kind::eager || kind == frame_kind::data || kind == frame_kind::lane_revoke ||
         kind == frame_kind::window;
}
[[nodiscard]] constexpr std::uint64_t padded(std::uint64_t size) noexcept {
  return (size + frame_alignment - 1) & ~(frame_alignment - 1);
}

/// Payload of `lane_revoke`.
struct lane_revoke_body {
  std::int32_t cause = 0;  ///< errc
  std::int32_t culprit = -1;
  std::int32_t origin = -1;
  std::int32_t other = -1;  ///< mismatch: the rank whose call differs from the culprit's
  signature culprit_call;
  signature other_call;
};
static_assert(sizeof(lane_revoke_body) == 80);

/// What a header says that no correct peer writes, or null. For every wire, before anything else is done with
/// it.
[[nodiscard]] constexpr const char* fault_of(const frame_header& header) noexcept {
  if (header.version != 1) return "a frame of unknown version";
  switch (header.kind) {
    case frame_kind::eager:
      return header.size > eager_limit ? "an eager message is longer than the limit" : nullptr;
    case frame_kind::data:
      return header.size > frame_limit ? "a frame is longer than the limit" : nullptr;
    case frame_kind::lane_revoke:
      return header.size != sizeof(lane_revoke_body) ? "a lane revoke has a wrong size" : nullptr;
    case frame_kind::credit:
      return header.size > eager_budget ? "more budget came back than there is" : nullptr;
    case frame_kind::window:
      return header.size > window_frame_limit ? "a frame of a window is longer than the limit" : nullptr;
    case frame_kind::announce:
    case frame_kind::ready:
      return nullptr;
  }
  return "a frame of unknown kind";
}

/// The whole of a tiny message in one cache line: the flag is in the last word and written last.
struct alignas(64) tiny_line {
  static constexpr std::size_t capacity = 32;
  std::uint64_t lane = 0;
  std::uint64_t ticket = 0;
  std::uint64_t call = 0;  ///< packed signature
  std::byte payload[capacity] = {};
  std::uint64_t stamp = 0;  ///< see make_stamp

  [[nodiscard]] static constexpr std::uint64_t make_stamp(std::uint32_t number, std::uint16_t channel,
                                                          std::uint8_t size) noexcept {
    return std::uint64_t{number} | std::uint64_t{channel} << 32 | std::uint64_t{size} << 48;
  }
  [[nodiscard]] std::uint32_t number() const noexcept { return static_cast<std::uint32_t>(stamp); }
  [[nodiscard]] std::uint16_t channel() const noexcept { return static_cast<std::uint16_t>(stamp >> 32); }
  [[nodiscard]] std::uint8_t size() const noexcept { return static_cast<std::uint8_t>(stamp >> 48); }
};
static_assert(sizeof(tiny_line) == 64);

}  // namespace chorale
