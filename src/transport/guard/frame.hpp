// What guards say to each other: fixed frames of 64 bytes, the same on control links and in mailboxes.
//
// Little-endian, no padding:
//   byte  0  u16  magic 0x4743 ("CG")
//         2  u8   version (1)
//         3  u8   kind (frame_kind)
//         4  i32  origin: the rank that wrote it first
//         8  i32  target: the rank it is for (question, answer), else −1
//        12  u32  sequence: number of a lane revoke of `origin`, or of a question
//        16  u64  nonce     \ of the communicator epoch; others are
//        24  u64  epoch     / dropped and counted
//        32  u64  lane
//        40  u64  ticket
//        48  i32  cause (errc)
//        52  i32  culprit
//        56  i32  detail (revoke::detail)
//        60  u8   scope (revoke_scope)
//        61  u8   attempt: which way a question or answer takes (next_hop)
//        62  u8   hops left before it is dropped
//        63  u8   call (call_state, in an answer)
// Pure functions, any thread, also in a signal handler.
#pragma once

#include <chorale/transport/guard/revoke.hpp>
#include <chorale/transport/guard/sink.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace chorale::guarding {

enum class frame_kind : std::uint8_t {
  revoke = 1,    ///< flooded; scope, lane, ticket, cause, culprit, detail
  question = 2,  ///< "are you there, and have you called `ticket` of `lane`?"
  answer = 3,    ///< the reply, with `call`
  left = 4,      ///< flooded: `culprit` left after `ticket`
  goodbye = 5,   ///< the last frame of a link that closes in good order
  death = 6,     ///< flooded: a host-mate or neighbour saw `culprit` die; `detail` as in revoke
};

struct frame {
  frame_kind kind = frame_kind::goodbye;
  revoke_scope scope = revoke_scope::all;
  std::uint8_t attempt = 0;
  std::uint8_t hops = 0;
  call_state call = call_state::unknown;
  rank_t origin = no_rank;
  rank_t target = no_rank;
  std::uint32_t sequence = 0;
  std::uint64_t nonce = 0;
  std::uint64_t epoch = 0;
  std::uint64_t lane = 0;
  std::uint64_t ticket = 0;
  errc cause = errc::ok;
  rank_t culprit = no_rank;
  std::int32_t detail = 0;

  friend bool operator==(const frame&, const frame&) = default;
};

using frame_bytes = std::array<std::byte, 64>;

[[nodiscard]] frame_bytes encode(const frame& f) noexcept;
/// Empty for bytes that no correct guard sends (magic, version, kind, cause, scope, call).
[[nodiscard]] std::optional<frame> decode(const frame_bytes& bytes) noexcept;

}  // namespace chorale::guarding
