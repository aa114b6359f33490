#include <chorale/schedule/generators.hpp>

#include <algorithm>
#include <limits>

namespace chorale::schedule {
namespace {

/// A ring seen from one of its members. Position p's own block travels from p + 1 around to p while it is
/// reduced, and once more around while the result is copied.
class ring_view {
 public:
  ring_view(const ring_order& order, rank_t rank, std::uint32_t channels)
      : order_{order}, rank_{rank}, channels_{channels}, size_{static_cast<std::uint32_t>(order.size())} {
    position_ = static_cast<std::uint32_t>(std::find(order.begin(), order.end(), rank) - order.begin());
  }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] rank_t rank() const { return rank_; }
  [[nodiscard]] rank_t next() const { return order_[(position_ + 1) % size_]; }
  [[nodiscard]] rank_t previous() const { return back(1); }
  /// The rank `distance` ≤ size positions behind me.
  [[nodiscard]] rank_t back(std::uint32_t distance) const {
    return order_[(position_ + size_ - distance) % size_];
  }
  /// The block of the rank `distance` behind me.
  [[nodiscard]] std::uint32_t block(std::uint32_t distance, std::uint32_t channel) const {
    return static_cast<std::uint32_t>(back(distance)) * channels_ + channel;
  }
  [[nodiscard]] step make(step_kind kind, std::uint32_t channel) const {
    return {.kind = kind,
            .channel = static_cast<channel_t>(channel),
            .send_to = sends(kind) ? next() : no_rank,
            .recv_from = receives(kind) ? previous() : no_rank};
  }

 private:
  const ring_order& order_;
  rank_t rank_;
  std::uint32_t channels_;
  std::uint32_t size_;
  std::uint32_t position_ = 0;
};

/// The reducing lap. Returns, per distance (index 0: distance 1) and channel, the step that read the input
/// block of the rank that far behind. The block at distance `size`, my own, ends here as `final_kind`, in
/// out[out_block(channel)].
template <class OutBlock>
std::vector<step_index> reducing_lap(rank_program& program, const ring_view& ring, std::uint32_t channels,
                                     step_kind final_kind, OutBlock out_block) {
  std::vector<step_index> readers;
  readers.reserve(std::size_t{ring.size()} * channels);
  rank_t lowest_behind = std::numeric_limits<rank_t>::max();
  for (std::uint32_t distance = 1; distance <= ring.size(); ++distance) {
    const bool last = distance == ring.size();
    const step_kind kind = distance == 1 ? step_kind::send : last ? final_kind : step_kind::recv_reduce_send;
    // A block arriving here holds the ranks between its owner and me.
    if (distance > 1) lowest_behind = std::min(lowest_behind, ring.back(distance - 1));
    for (std::uint32_t channel = 0; channel < channels; ++channel) {
      step s = ring.make(kind, channel);
      s.order = ring.rank() < lowest_behind ? operand_order::local_first : operand_order::arriving_first;
      s.src = {space::in, ring.block(distance, channel), 1};
      if (last) s.dst = {space::out, out_block(channel), 1};
      readers.push_back(program.add(s));
    }
  }
  return readers;
}

/// The copying lap after my own block has left: blocks at distance 1 … size − 1 arrive and, but for the last,
/// travel on. `readers` (may be empty) are the steps that must have read the input before it is overwritten.
void copying_lap(rank_program& program, const ring_view& ring, std::uint32_t channels,
                 std::span<const step_index> readers) {
  for (std::uint32_t distance = 1; distance < ring.size(); ++distance) {
    const bool last = distance + 1 == ring.size();
    for (std::uint32_t channel = 0; channel < channels; ++channel) {
      step s = ring.make(last ? step_kind::recv : step_kind::recv_copy_send, channel);
      s.dst = {space::out, ring.block(distance, channel), 1};
      if (readers.empty())
        program.add(s);
      else
        program.add(s, {readers[std::size_t{distance - 1} * channels + channel]});
    }
  }
}

void copy_own(rank_program& program, std::uint32_t channels, std::uint32_t in_block,
              std::uint32_t out_block) {
  for (std::uint32_t channel = 0; channel < channels; ++channel) {
    program.add({.kind = step_kind::copy,
                 .src = {space::in, in_block + channel, 1},
                 .dst = {space::out, out_block + channel, 1}});
  }
}

result<algorithm> make_ring(collective what, rank_t ranks, std::uint32_t channels, ring_order order) {
  if (ranks < 1 || channels < 1 || channels > std::numeric_limits<channel_t>::max())
    return error{errc::invalid_argument, "ring over " + std::to_string(ranks) + " ranks and " +
                                             std::to_string(channels) +
                                             " channels: ask for at least one rank and 1 to 65535 channels"};
  if (order.empty()) {
    for (rank_t r = 0; r < ranks; ++r) order.push_back(r);
  }
  ring_order sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (rank_t r = 0; r < ranks; ++r) {
    if (sorted.size() != static_cast<std::size_t>(ranks) || sorted[static_cast<std::size_t>(r)] != r)
      return error{errc::invalid_argument, "ring order: name each of the " + std::to_string(ranks) +
                                               " ranks exactly once, not " + std::to_string(order.size()) +
                                               " entries with gaps or repeats"};
  }

  const bool reducing = what != collective::all_gather;
  const bool copying = what != collective::reduce_scatter;
  const auto all_blocks = static_cast<std::uint32_t>(ranks) * channels;
  const definition meaning{
      .what = what, .ranks = ranks, .blocks = what == collective::all_reduce ? all_blocks : channels};
  auto make = [=, order = std::move(order)](rank_t rank) {
    rank_program program;
    const ring_view ring{order, rank, channels};
    const std::uint32_t own = static_cast<std::uint32_t>(rank) * channels;
    program.reserve(std::size_t{2} * all_blocks);
    if (ring.size() == 1) {
      copy_own(program, channels, 0, 0);
    } else if (reducing) {
      const std::uint32_t out_base = copying ? own : 0;
      const auto readers = reducing_lap(program, ring, channels,
                                        copying ? step_kind::recv_reduce_copy_send : step_kind::recv_reduce,
                                        [out_base](std::uint32_t channel) { return out_base + channel; });
      if (copying) copying_lap(program, ring, channels, readers);
    } else {
      for (std::uint32_t channel = 0; channel < channels; ++channel) {
        step s = ring.make(step_kind::send, channel);
        s.src = {space::in, channel, 1};
        program.add(s);
      }
      copy_own(program, channels, 0, own);
      copying_lap(program, ring, channels, {});
    }
    return program;
  };
  return algorithm{"ring, " + std::to_string(channels) + (channels == 1 ? " channel" : " channels"),
                   meaning,
                   std::move(make),
                   placement_support::both,
                   step_unit::block,
                   share_lengths::each_end_knows};
}

}  // namespace

result<algorithm> ring_all_reduce(rank_t ranks, std::uint32_t channels, ring_order order) {
  return make_ring(collective::all_reduce, ranks, channels, std::move(order));
}
result<algorithm> ring_reduce_scatter(rank_t ranks, std::uint32_t channels, ring_order order) {
  return make_ring(collective::reduce_scatter, ranks, channels, std::move(order));
}
result<algorithm> ring_all_gather(rank_t ranks, std::uint32_t channels, ring_order order) {
  return make_ring(collective::all_gather, ranks, channels, std::move(order));
}

}  // namespace chorale::schedule
