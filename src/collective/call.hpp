// What the application asked for, as plain data, and the signature that peers compare.
#pragma once

#include <chorale/async/clock.hpp>
#include <chorale/async/result.hpp>
#include <chorale/collective/count_table.hpp>
#include <chorale/collective/message.hpp>
#include <chorale/collective/user_reduction.hpp>
#include <chorale/kernels/dtype.hpp>
#include <chorale/transport/signature.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace chorale {

struct prepared_call;

/// Values travel in signatures: append, never renumber.
enum class collective_kind : std::uint8_t {
  none = 0,
  all_reduce = 1,
  message = 2,
  barrier = 3,
  reduce = 4,
  broadcast = 5,
  all_gather = 6,
  reduce_scatter = 7,
  all_to_all = 8,
  gather = 9,
  scatter = 10,
  scan = 11,
  exscan = 12,
  all_gather_v = 13,
  reduce_scatter_v = 14,
  all_to_all_v = 15,
  gather_v = 16,
  scatter_v = 17,
  split = 18,   ///< an all_gather of what every rank wants
  window = 19,  ///< likewise: what every rank brings
};
inline constexpr std::size_t collective_kinds = 20;

[[nodiscard]] std::string_view name_of(collective_kind kind) noexcept;
[[nodiscard]] bool reduces(collective_kind kind) noexcept;
[[nodiscard]] bool has_root(collective_kind kind) noexcept;
/// Shares of different lengths: the call has a count table.
[[nodiscard]] bool has_counts(collective_kind kind) noexcept;

/// Buffers are the caller's from the call to the end of the operation. A rank's buffer that its part of the
/// collective does not need (the output of a reduce elsewhere than at the root) is neither read nor written.
struct call {
  collective_kind kind = collective_kind::none;
  dtype type = dtype::none;
  reduction op = reduction::none;
  dtype scalar_type = dtype::none;  ///< premul_sum: what `scalar` holds
  rank_t root = 0;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  /// What peers compare: the elements of the vector (all_reduce, reduce, broadcast, scans, messages), of one
  /// share (all_gather, reduce_scatter, gather, scatter), of all shares (all_to_all and the forms with
  /// counts).
  std::uint64_t count = 0;
  std::uint64_t in_count = 0;   ///< elements of the buffer the application gave: for `validate` only
  std::uint64_t out_count = 0;  ///< as `in_count`
  bool on_device = false;       ///< the buffers are a GPU's: the call goes to a stream
  // A message, or one each way.
  bool sending = false;
  bool receiving = false;
  rank_t peer = no_rank;    ///< where `in` goes
  rank_t source = no_rank;  ///< where `out` comes from; may be any_source
  tag_t tag = 0;
  tag_t receive_tag = 0;             ///< may be any_tag
  std::uint64_t room = 0;            ///< elements that `out` has
  received* told = nullptr;          ///< written when a message has come; null: nobody asks
  std::uint64_t send_number = 0;     ///< the core's: what the messages are named by on the wire
  std::uint64_t receive_number = 0;  ///< 0: not known yet
  time_point expires = never;
  std::shared_ptr<const count_table> counts;
  std::shared_ptr<const prepared_call> prepared;  ///< of a persistent plan
  user_reduction user;
  std::array<std::byte, 8> scalar{};

  /// Nothing moves, as every rank knows: ranks still meet and compare signatures, over one token.
  [[nodiscard]] bool carries_nothing() const noexcept {
    return count == 0 && kind != collective_kind::message && kind != collective_kind::all_to_all_v;
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return count * size_of(type); }
};

/// What this rank's buffers must hold, in elements, and how they lie when they share memory.
struct buffer_shape {
  bool reads = false;
  bool writes = false;
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  /// In place, the input starts so many elements into the memory that both share, and the output so many.
  std::uint64_t in_begins = 0;
  std::uint64_t out_begins = 0;
};
[[nodiscard]] buffer_shape shape_of(const call& c, rank_t rank, rank_t ranks) noexcept;
/// Whether this rank's buffers share memory in the collective's in-place form.
[[nodiscard]] bool in_place(const call& c, rank_t rank, rank_t ranks) noexcept;

/// Everything that decides whether a call is valid and how it is run is the same. False for messages, which
/// are not worth asking for.
[[nodiscard]] bool is_same(const call& a, const call& b) noexcept;

/// What every peer has to have called; for all_to_all_v see `signature_between`.
[[nodiscard]] signature signature_of(const call& c) noexcept;
/// Of either side of a message: see `fits`.
[[nodiscard]] signature sent_signature(const call& c) noexcept;
[[nodiscard]] signature received_signature(const call& c) noexcept;
/// What `me` expects of messages to and from `peer`. Both ends compute the same: all_to_all_v puts what goes
/// to the higher rank and what comes back from it.
[[nodiscard]] signature signature_between(const signature& whole, const count_table* counts, rank_t me,
                                          rank_t peer) noexcept;
/// "all_reduce of 1024 × f32, sum".
[[nodiscard]] std::string describe(const signature& s);

/// Checks what can be checked without a peer: null pointers, lengths, overlap, alignment, sizes, roots.
[[nodiscard]] result<void> validate(const call& c, rank_t rank, rank_t ranks);
/// The same for calls that go to a stream, whose buffers must be a GPU's.
[[nodiscard]] result<void> validate_on_stream(const call& c, rank_t rank, rank_t ranks);

}  // namespace chorale
