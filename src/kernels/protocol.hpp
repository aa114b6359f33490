// The words that GPU ranks exchange, and their arithmetic.
//
// Everything here is pure and compiles for host and device: operation counters and the flags made of them,
// packed verdicts (stop, abort and status words) and signatures. Nothing waits, nothing can fail.
//
// Counter: one per edge, that is, per pair of ranks, since an operation may concern some pairs only. 64 bits
// in the device block, advanced by each kernel that uses the edge, so that graph replays count. LL packets
// and signature slots carry its lower 32 bits. A value whose lower part is 0 is skipped: 0 is what a cleared
// slot holds. When the upper part steps, the edge's slots are cleared while both ranks meet (operation.hpp),
// hence no value is ever looked for while an equal, old one can lie in a slot. LL128 lines carry all 64 bits,
// ring flags 64-bit sequence numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define CHORALE_HOST_DEVICE __host__ __device__
#define CHORALE_UNROLL _Pragma("unroll")  // registers may only be indexed by constants on a GPU
#else
#define CHORALE_HOST_DEVICE
#define CHORALE_UNROLL
#endif

namespace chorale::kernels {

inline constexpr std::uint32_t max_ranks = 8;
inline constexpr std::uint32_t max_ctas = 64;
inline constexpr std::uint32_t max_stripes = 2 * max_ctas;

/// The number of the operation after `last`.
CHORALE_HOST_DEVICE constexpr std::uint64_t next_counter(std::uint64_t last) {
  const std::uint64_t next = last + 1;
  return static_cast<std::uint32_t>(next) == 0 ? next + 1 : next;
}
CHORALE_HOST_DEVICE constexpr std::uint32_t wire_flag(std::uint64_t counter) {
  return static_cast<std::uint32_t>(counter);
}
/// Whether operation `counter` is the first that reuses 32-bit flag values.
CHORALE_HOST_DEVICE constexpr bool rolls_over(std::uint64_t counter) {
  return static_cast<std::uint32_t>(counter) == 1 && (counter >> 32) != 0;
}
/// Which of the edge's two slot sets an operation uses. Two are enough because an operation ends on a rank
/// only after the edge's other rank has begun it, thus has finished the one before. Across a skipped 0 two
/// neighbours share a set; the roll-over's meeting keeps them apart.
CHORALE_HOST_DEVICE constexpr std::uint32_t parity_of(std::uint64_t counter) {
  return static_cast<std::uint32_t>(counter & 1);
}

/// Where rank `receiver` keeps what `source` sends: sources in rank order, without the receiver itself.
CHORALE_HOST_DEVICE constexpr std::uint32_t source_slot(std::uint32_t receiver, std::uint32_t source) {
  return source < receiver ? source : source - 1;
}

/// Stop, abort and status words: generation, cause (an errc) and culprit in one atomic 64-bit word; 0 = none.
struct verdict {
  std::uint32_t generation;  ///< of the device group; never 0
  std::uint16_t cause;
  std::int16_t culprit;  ///< -1: no rank

  friend CHORALE_HOST_DEVICE constexpr bool operator==(const verdict& a, const verdict& b) {
    return a.generation == b.generation && a.cause == b.cause && a.culprit == b.culprit;
  }
};
CHORALE_HOST_DEVICE constexpr std::uint64_t pack(verdict v) {
  return (static_cast<std::uint64_t>(v.generation) << 32) | (static_cast<std::uint64_t>(v.cause) << 16) |
         static_cast<std::uint16_t>(v.culprit);
}
CHORALE_HOST_DEVICE constexpr verdict unpack(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint16_t>(word >> 16),
          static_cast<std::int16_t>(static_cast<std::uint16_t>(word))};
}

/// What both ranks of an edge must agree on for one operation, whatever algorithm each of them picked: three
/// words. First the kinds, then a count (elements; of messages and all_to_all_v, bytes that go to the higher
/// rank), then bytes that come back, or the hash of a table of counts.
CHORALE_HOST_DEVICE constexpr std::uint64_t signature_kinds(std::uint8_t kind, std::uint8_t dtype,
                                                            std::uint8_t op, std::int32_t root) {
  return kind | (static_cast<std::uint64_t>(dtype) << 8) | (static_cast<std::uint64_t>(op) << 16) |
         (static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << 32);
}

/// An LL packet: two 32-bit values, each next to the flag, moved as one 128-bit access.
struct packet {
  std::uint64_t low;
  std::uint64_t high;
};
CHORALE_HOST_DEVICE constexpr packet make_packet(std::uint32_t a, std::uint32_t b, std::uint32_t flag) {
  const std::uint64_t upper = static_cast<std::uint64_t>(flag) << 32;
  return {upper | a, upper | b};
}
CHORALE_HOST_DEVICE constexpr bool carries(const packet& p, std::uint32_t flag) {
  return static_cast<std::uint32_t>(p.low >> 32) == flag && static_cast<std::uint32_t>(p.high >> 32) == flag;
}
CHORALE_HOST_DEVICE constexpr std::uint64_t payload(const packet& p) {
  return (p.high << 32) | static_cast<std::uint32_t>(p.low);
}
/// A signature travels as three packets. A fourth brings the sender's scalar, which is not compared.
inline constexpr std::uint32_t signature_parts = 3;
inline constexpr std::uint32_t signature_slots = signature_parts + 1;
CHORALE_HOST_DEVICE constexpr packet word_packet(std::uint64_t word, std::uint32_t flag) {
  return make_packet(static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32), flag);
}
/// LL128: a 128-byte line holds fifteen 8-byte words of data and the counter in the last one. A quarter warp
/// moves a line, 16 bytes per lane; lane 7 carries one data word and the flag.
inline constexpr std::uint32_t word_bytes = 8;
inline constexpr std::uint32_t line_words = 15;
inline constexpr std::uint32_t line_bytes = 128;
inline constexpr std::uint32_t lines_per_warp = 4;
CHORALE_HOST_DEVICE constexpr std::uint64_t words_of(std::uint64_t bytes) {
  return (bytes + word_bytes - 1) / word_bytes;
}
CHORALE_HOST_DEVICE constexpr std::uint64_t lines_of(std::uint64_t bytes) {
  return (words_of(bytes) + line_words - 1) / line_words;
}
/// First of the (up to two) data words that lane `lane` of a quarter warp carries of line `line`.
CHORALE_HOST_DEVICE constexpr std::uint64_t word_of_lane(std::uint64_t line, std::uint32_t lane) {
  return line * line_words + 2 * static_cast<std::uint64_t>(lane);
}

/// Ring: an extent is cut into chunks; chunk k belongs to stripe k mod stripes, its m-th visit there is
/// sequence number base + m of that edge, direction and stripe, and it lies in slot sequence mod slots.
CHORALE_HOST_DEVICE constexpr std::uint64_t chunks_of(std::uint64_t bytes, std::uint64_t chunk) {
  return bytes == 0 ? 0 : (bytes + chunk - 1) / chunk;
}
CHORALE_HOST_DEVICE constexpr std::uint64_t chunks_of_stripe(std::uint64_t chunks, std::uint32_t stripe,
                                                             std::uint32_t stripes) {
  return chunks > stripe ? (chunks - stripe + stripes - 1) / stripes : 0;
}
/// A pusher may send sequence number `next` once the receiver has consumed all but `slots` of those before.
CHORALE_HOST_DEVICE constexpr bool has_credit(std::uint64_t next, std::uint64_t consumed,
                                              std::uint32_t slots) {
  return next < consumed + slots;
}

}  // namespace chorale::kernels
