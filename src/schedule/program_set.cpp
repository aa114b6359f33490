#include <chorale/schedule/program_set.hpp>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace chorale::schedule {
namespace {

constexpr rank_t most_ranks = 1 << 24;

/// An edge as one number, so that a sort brings the messages of an edge together.
std::uint64_t edge_key(rank_t from, rank_t to, channel_t channel) {
  return (static_cast<std::uint64_t>(from) << 40) | (static_cast<std::uint64_t>(to) << 16) | channel;
}

using message_end = std::pair<std::uint64_t, global_step>;  ///< edge, step; sorts into list order

std::string name_of_edge(const step& s, rank_t from, rank_t to) {
  return "the edge from " + std::to_string(from) + " to " + std::to_string(to) + " on channel " +
         std::to_string(s.channel);
}

std::size_t end_of_edge(std::span<const message_end> ends, std::size_t begin) {
  std::size_t end = begin;
  while (end < ends.size() && ends[end].first == ends[begin].first) ++end;
  return end;
}

}  // namespace

error program_set::fault(global_step s, const std::string& what) const {
  return error{errc::invalid_argument, name_ + ": " + name_of_step(s) + " " + what, rank_of(s)};
}

result<program_set> program_set::load(const algorithm& schedule, placement form) {
  program_set set{schedule, form};
  if (auto loaded = set.load_programs(schedule); !loaded) return loaded.error();
  for (global_step s = 0; s < set.step_count(); ++s) {
    if (auto sound = set.check_step(s); !sound) return sound.error();
  }
  if (auto paired = set.pair_messages(); !paired) return paired.error();
  return set;
}

result<> program_set::load_programs(const algorithm& schedule) {
  if (what_.ranks < 1 || what_.ranks > most_ranks || what_.blocks < 1 || what_.root < 0 ||
      what_.root >= what_.ranks)
    return error{errc::invalid_argument, name_ + ": a definition with " + std::to_string(what_.ranks) +
                                             " ranks, " + std::to_string(what_.blocks) + " blocks and root " +
                                             std::to_string(what_.root) +
                                             " has no meaning: correct the generator"};
  first_step_.push_back(0);
  for (rank_t r = 0; r < what_.ranks; ++r) {
    programs_.push_back(schedule.program(r));
    const std::uint64_t end = std::uint64_t{first_step_.back()} + programs_.back().steps().size();
    if (end > std::numeric_limits<global_step>::max())
      return error{errc::invalid_argument, name_ + ": more than 2^32 steps: check it with fewer ranks"};
    first_step_.push_back(static_cast<global_step>(end));
    rank_of_.resize(end, r);
  }
  return {};
}

result<> program_set::check_blocks(global_step s, const block_ref& ref) const {
  const std::size_t size = ref.where == space::in    ? what_.in_blocks()
                           : ref.where == space::out ? what_.out_blocks()
                                                     : program(rank_of(s)).scratch().size();
  if (ref.count == 0 || ref.block >= size || ref.count > size - ref.block)
    return fault(s, "names " + describe(ref) + ", but " + std::string{name_of(ref.where)} + " has " +
                        std::to_string(size) + " blocks");
  if (ref.count != 1 && unit_ == step_unit::block)
    return fault(s, "moves " + describe(ref) + ", but the algorithm says that its steps move single blocks");
  return {};
}

result<> program_set::check_step(global_step s) const {
  const step& it = at(s);
  const rank_t me = rank_of(s);
  for (const auto& [used, peer] :
       {std::pair{sends(it.kind), it.send_to}, std::pair{receives(it.kind), it.recv_from}}) {
    if (used && (peer < 0 || peer >= ranks() || peer == me))
      return fault(s, "has no such peer: other ranks are 0 to " + std::to_string(ranks() - 1));
  }
  if (reads_src(it.kind)) {
    if (auto sound = check_blocks(s, it.src); !sound) return sound;
  }
  if (writes_dst(it.kind)) {
    if (auto sound = check_blocks(s, it.dst); !sound) return sound;
    if (it.dst.where == space::in && form_ == placement::out_of_place)
      return fault(s, "writes " + describe(it.dst) + ", the caller's input: write out or scratch");
    if (it.dst.where == space::out && !what_.writes_output(me))
      return fault(s, "writes " + describe(it.dst) + ", but " + std::string{name_of(what_.what)} +
                          " leaves this rank no output: write scratch");
    if (reads_src(it.kind) && it.src.count != it.dst.count)
      return fault(s, "joins " + describe(it.src) + " and " + describe(it.dst) + " of different size");
  }
  for (const step_index d : program(me).dependencies(it)) {
    if (d >= index_of(s))
      return fault(s, "depends on step " + std::to_string(d) +
                          ", which does not come before it: dependencies point backwards");
  }
  return {};
}

result<> program_set::pair_messages() {
  std::vector<message_end> sending;
  std::vector<message_end> receiving;
  for (global_step s = 0; s < step_count(); ++s) {
    const step& it = at(s);
    if (sends(it.kind)) sending.push_back({edge_key(rank_of(s), it.send_to, it.channel), s});
    if (receives(it.kind)) receiving.push_back({edge_key(it.recv_from, rank_of(s), it.channel), s});
  }
  std::sort(sending.begin(), sending.end());
  std::sort(receiving.begin(), receiving.end());
  sent_.assign(step_count(), no_message);
  received_.assign(step_count(), no_message);
  messages_.reserve(sending.size());

  std::size_t out = 0;
  std::size_t in = 0;
  while (out < sending.size() || in < receiving.size()) {
    const bool only_received =
        out == sending.size() || (in < receiving.size() && receiving[in].first < sending[out].first);
    const bool only_sent =
        in == receiving.size() || (out < sending.size() && sending[out].first < receiving[in].first);
    const std::size_t out_end = only_received ? out : end_of_edge(sending, out);
    const std::size_t in_end = only_sent ? in : end_of_edge(receiving, in);
    const std::size_t count = std::min(out_end - out, in_end - in);
    ++edges_;
    for (std::size_t k = 0; k < count; ++k) {
      const global_step from = sending[out + k].second;
      const global_step to = receiving[in + k].second;
      if (at(from).count() != at(to).count())
        return fault(to, "expects " + std::to_string(at(to).count()) + " blocks as message " +
                             std::to_string(k) + " of its edge, where " + name_of_step(from) + " sends " +
                             std::to_string(at(from).count()));
      sent_[from] = received_[to] = static_cast<message_index>(messages_.size());
      messages_.push_back(
          {from, to, static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(count - 1 - k)});
    }
    if (out_end - out != in_end - in) {
      const bool too_many_sent = out_end - out > count;
      const global_step lonely = too_many_sent ? sending[out + count].second : receiving[in + count].second;
      const step& it = at(lonely);
      const std::string edge = too_many_sent ? name_of_edge(it, rank_of(lonely), it.send_to)
                                             : name_of_edge(it, it.recv_from, rank_of(lonely));
      return fault(lonely, "has no counterpart: " + edge + " has " + std::to_string(out_end - out) +
                               " sends and " + std::to_string(in_end - in) + " receives");
    }
    out = out_end;
    in = in_end;
  }
  return {};
}

std::uint32_t program_set::location(rank_t rank, const block_ref& ref) const {
  const bool shared = form_ == placement::in_place;
  const std::uint32_t buffers =
      shared ? std::max(what_.in_blocks(), what_.out_blocks()) : what_.in_blocks() + what_.out_blocks();
  switch (ref.where) {
    case space::in:
      return ref.block + (shared ? what_.in_place_input(rank) : 0);
    case space::out:
      return ref.block + (shared ? what_.in_place_output(rank) : what_.in_blocks());
    case space::scratch:
      break;
  }
  return buffers + ref.block;
}

std::uint32_t program_set::locations(rank_t rank) const {
  return location(rank, {space::scratch, static_cast<std::uint32_t>(program(rank).scratch().size()), 0});
}

}  // namespace chorale::schedule
