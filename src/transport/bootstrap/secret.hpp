// The job's secret: random bytes, and proofs of knowing it that do not show it.
//
// A proof is HMAC-SHA256 over what both sides said, keyed by the secret. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace chorale {

using proof = std::array<std::byte, 32>;
using challenge = std::array<std::byte, 16>;

[[nodiscard]] proof hmac_sha256(std::string_view key, std::span<const std::byte> message);
/// Takes the same time whatever differs.
[[nodiscard]] bool same_proof(const proof& a, const proof& b) noexcept;

/// From the kernel's generator; throws `failure` where it has none.
void fill_random(std::span<std::byte> bytes);
[[nodiscard]] challenge random_challenge();
[[nodiscard]] std::uint64_t random_word();
[[nodiscard]] std::string random_hex(std::size_t bytes);
[[nodiscard]] std::string to_hex(std::span<const std::byte> bytes);

}  // namespace chorale
