// Collectives on device memory as one pattern: what goes to each peer, what comes from each, and whether it
// is copied to its place or folded. `device_group::exchange` runs it.
//
// The functions below describe the named collectives from one rank's view. They check what only they know
// (roots, counts); `device_group` checks what holds for all: null pointers, alignment to the element,
// overlap, and whether the type has the operation. Counts are elements. Pure, any thread.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/kernels/dtype.hpp>
#include <chorale/kernels/protocol.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chorale::cuda {

/// What ranks compare; the values are those of the communicator's collectives.
enum class exchange_kind : std::uint8_t {
  all_reduce = 1,
  messages = 2,
  barrier = 3,
  reduce = 4,
  broadcast = 5,
  all_gather = 6,
  reduce_scatter = 7,
  all_to_all = 8,
  gather = 9,
  scatter = 10,
  all_gather_v = 13,
  reduce_scatter_v = 14,
  all_to_all_v = 15,
  gather_v = 16,
  scatter_v = 17,
};
[[nodiscard]] std::string_view name_of(exchange_kind kind) noexcept;

/// Memory that this rank gives or takes.
struct extent {
  std::byte* data = nullptr;  ///< never written through where it is given
  std::uint64_t bytes = 0;
};

/// Arrays are by rank; the own rank's entries are its own part.
struct exchange_call {
  exchange_kind kind = exchange_kind::barrier;
  dtype type = dtype::u8;
  reduction op = reduction::none;
  rank_t root = 0;
  std::array<extent, kernels::max_ranks> send{};
  std::array<extent, kernels::max_ranks> receive{};
  /// Ranks that this one exchanges anything with, if only that nothing moves. Both ranks of a pair list each
  /// other, or neither.
  std::uint8_t peers = 0;
  /// Arrivals and the own send[own] are folded into receive[own], lower ranks first; with `gathers`, which is
  /// all_reduce's, that then goes to all peers, whose receive[p] is theirs.
  bool folds = false;
  std::uint64_t scalar = 0;  ///< premul_sum: this rank's factor, an element of `type` in the low bits
  std::uint64_t count = 0;   ///< what is compared, of all collectives but messages and all_to_all_v
  std::uint64_t hash = 0;    ///< of the counts, likewise
  /// Messages: element types of what goes and comes, by peer; compared beside the bytes.
  std::array<dtype, kernels::max_ranks> send_types{};
  std::array<dtype, kernels::max_ranks> receive_types{};
  /// Bytes of the largest extent between any two ranks, as all ranks know it. Messages and all_to_all_v:
  /// ignored, each pair has its own.
  std::uint64_t largest = 0;

  /// Each pair compares, and plans by, what goes between its two ranks.
  [[nodiscard]] bool is_pairwise() const noexcept {
    return kind == exchange_kind::messages || kind == exchange_kind::all_to_all_v;
  }
};

/// Who calls.
struct place_in_group {
  rank_t rank = 0;
  int size = 1;
};

/// A message to or from a peer, or from a rank to itself (one of each).
struct message {
  rank_t peer = 0;
  const void* send = nullptr;
  void* receive = nullptr;
  std::uint64_t count = 0;
  dtype type = dtype::u8;
  bool sending = false;  ///< `send` counts, else `receive`
};
[[nodiscard]] constexpr message send_to(rank_t peer, const void* data, std::uint64_t count, dtype type) {
  return {peer, data, nullptr, count, type, true};
}
[[nodiscard]] constexpr message receive_from(rank_t peer, void* data, std::uint64_t count, dtype type) {
  return {peer, nullptr, data, count, type, false};
}

struct reduction_of {
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  std::uint64_t scalar = 0;  ///< premul_sum only
};

using counts_by_rank = std::span<const std::uint64_t>;

// Every rank's whole buffers are given, whatever of them the rank needs: the input of a broadcast is read at
// the root only, the output of a reduce written there only, and null is right elsewhere.

exchange_call all_reduce_call(place_in_group at, const void* in, void* out, std::uint64_t count,
                              const reduction_of& how);
result<exchange_call> reduce_call(place_in_group at, const void* in, void* out, std::uint64_t count,
                                  const reduction_of& how, rank_t root);
result<exchange_call> broadcast_call(place_in_group at, const void* in, void* out, std::uint64_t count,
                                     dtype type, rank_t root);
/// `count`: of one rank's share, here and in the four below.
exchange_call all_gather_call(place_in_group at, const void* in, void* out, std::uint64_t count, dtype type);
exchange_call reduce_scatter_call(place_in_group at, const void* in, void* out, std::uint64_t count,
                                  const reduction_of& how);
exchange_call all_to_all_call(place_in_group at, const void* in, void* out, std::uint64_t count, dtype type);
result<exchange_call> gather_call(place_in_group at, const void* in, void* out, std::uint64_t count,
                                  dtype type, rank_t root);
result<exchange_call> scatter_call(place_in_group at, const void* in, void* out, std::uint64_t count,
                                   dtype type, rank_t root);
// Shares of different lengths, packed in rank order. The counts are the same on every rank, except those of
// all_to_all_v, which are this rank's own.
result<exchange_call> all_gather_v_call(place_in_group at, const void* in, void* out, counts_by_rank counts,
                                        dtype type);
result<exchange_call> reduce_scatter_v_call(place_in_group at, const void* in, void* out,
                                            counts_by_rank counts, const reduction_of& how);
result<exchange_call> all_to_all_v_call(place_in_group at, const void* in, counts_by_rank sent, void* out,
                                        counts_by_rank received, dtype type);
result<exchange_call> gather_v_call(place_in_group at, const void* in, void* out, counts_by_rank counts,
                                    dtype type, rank_t root);
result<exchange_call> scatter_v_call(place_in_group at, const void* in, void* out, counts_by_rank counts,
                                     dtype type, rank_t root);
/// At most one message per peer and direction; they go both ways at once.
result<exchange_call> messages_call(place_in_group at, std::span<const message> messages);
exchange_call barrier_call(place_in_group at);

}  // namespace chorale::cuda
