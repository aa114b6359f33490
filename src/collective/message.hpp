// What messages between two ranks are called by, and what is told of one that came.
#pragma once

#include <chorale/async/error.hpp>
#include <chorale/transport/signature.hpp>

#include <cstdint>

namespace chorale {

/// A number that the sender gives; a receive takes messages of its tag only. 0 where none is named.
using tag_t = std::int32_t;
/// For a receive: whatever its tag.
inline constexpr tag_t any_tag = -1;
/// For a receive: whoever sends.
inline constexpr rank_t any_source = -2;

/// What a receive got. What the buffer holds beyond it was not touched.
struct received {
  rank_t source = no_rank;
  tag_t tag = 0;
  std::uint64_t count = 0;  ///< elements
  std::uint64_t bytes = 0;
};

// In the flags of a message's signature.
inline constexpr std::uint8_t message_sent = 1;
inline constexpr std::uint8_t message_received = 2;
inline constexpr std::uint8_t message_of_any_tag = 4;

/// Whether a receive may take a message: one element type, the tag, and room for all of it.
[[nodiscard]] constexpr bool fits(const signature& sent, const signature& into) noexcept {
  return sent.kind == into.kind && sent.dtype == into.dtype && sent.flags == message_sent &&
         (into.flags & message_received) != 0 && sent.count <= into.count &&
         ((into.flags & message_of_any_tag) != 0 || sent.root == into.root);
}

// Messages have a number space of their own, per lane, pair and direction, marked by the top bit. Those
// without a tag are numbered by sender and receiver alike, so that the receiver can speak first; the others
// are named by the sender, in one count, and the receiver finds out which call takes them.
inline constexpr std::uint64_t message_ticket = std::uint64_t{1} << 63;
inline constexpr std::uint64_t tagged_ticket = std::uint64_t{1} << 62;
/// A call that has no number of a message (yet): its rank's own count, which says nothing to others.
inline constexpr std::uint64_t local_ticket = std::uint64_t{1} << 61;
/// As people count.
[[nodiscard]] constexpr std::uint64_t plain_number(std::uint64_t ticket) noexcept {
  return (ticket & message_ticket) != 0 ? ticket & ~(message_ticket | tagged_ticket | local_ticket) : ticket;
}

}  // namespace chorale
