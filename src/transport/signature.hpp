// What a rank says it called: 32 bytes that ride on every message and are compared on every arrival.
//
// The fields mean the same whatever algorithm each side picked. Transport compares them; src/collective fills
// them and makes text of them. Signatures of tiny calls also fit 64 bits without loss, for the one-line path.
#pragma once

#include <cstdint>
#include <optional>

namespace chorale {

struct signature {
  std::uint8_t kind = 0;   ///< collective_kind
  std::uint8_t dtype = 0;  ///< chorale::dtype
  std::uint8_t op = 0;     ///< chorale::reduction
  std::uint8_t flags = 0;
  std::uint32_t root = 0;
  std::uint64_t count = 0;  ///< elements
  std::uint64_t hash = 0;   ///< of the count vector or of user code; 0 without
  std::uint64_t reserved = 0;
  friend bool operator==(const signature&, const signature&) = default;
};
static_assert(sizeof(signature) == 32);

/// The signature in 64 bits; nothing when it does not fit (a count above 255, a root of 2^24 or more, a
/// hash).
[[nodiscard]] constexpr std::optional<std::uint64_t> pack(const signature& s) noexcept {
  if (s.count > 0xff || s.root > 0xffffff || s.hash != 0) return std::nullopt;
  return std::uint64_t{s.kind} | std::uint64_t{s.dtype} << 8 | std::uint64_t{s.op} << 16 |
         std::uint64_t{s.flags} << 24 | s.count << 32 | std::uint64_t{s.root} << 40;
}

[[nodiscard]] constexpr signature unpack(std::uint64_t packed) noexcept {
  signature s;
  s.kind = static_cast<std::uint8_t>(packed);
  s.dtype = static_cast<std::uint8_t>(packed >> 8);
  s.op = static_cast<std::uint8_t>(packed >> 16);
  s.flags = static_cast<std::uint8_t>(packed >> 24);
  s.count = (packed >> 32) & 0xff;
  s.root = static_cast<std::uint32_t>(packed >> 40);
  return s;
}

}  // namespace chorale
