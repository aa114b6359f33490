// What the application asked for, as plain data, and the signature that peers compare.
#pragma once

#include <chorale/async/clock.hpp>
#include <chorale/async/result.hpp>
#include <chorale/kernels/dtype.hpp>
#include <chorale/transport/signature.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace chorale {

/// Values travel in signatures: append, never renumber.
enum class collective_kind : std::uint8_t { none = 0, all_reduce = 1, message = 2, barrier = 3 };

[[nodiscard]] std::string_view name_of(collective_kind kind) noexcept;

/// Buffers are the caller's from the call to the end of the operation. `in == out` is the in-place form.
struct call {
  collective_kind kind = collective_kind::none;
  dtype type = dtype::none;
  reduction op = reduction::none;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::uint64_t count = 0;
  rank_t peer = no_rank;  ///< message: the other side
  bool sending = false;   ///< message: which side this is
  time_point expires = never;

  /// A barrier, or a reduction of no elements: ranks still meet and compare signatures, over one token.
  [[nodiscard]] bool carries_nothing() const noexcept {
    return kind != collective_kind::message && count == 0;
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return count * size_of(type); }
};

[[nodiscard]] signature signature_of(const call& c) noexcept;
/// "all_reduce of 1024 × f32, sum".
[[nodiscard]] std::string describe(const signature& s);

/// Checks what can be checked without a peer: null pointers, overlap, alignment, sizes.
[[nodiscard]] result<void> validate(const call& c, rank_t rank, rank_t ranks);

/// Tickets of messages live in a number space of their own, per lane, peer and direction.
inline constexpr std::uint64_t message_ticket = std::uint64_t{1} << 63;

}  // namespace chorale
