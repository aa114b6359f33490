#include <chorale/schedule/lowering.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace chorale::schedule {
namespace {

/// Scratch blocks begin on cache lines, unless a step treats several as one run of memory.
constexpr std::uint64_t scratch_alignment = 64;

/// A run of elements somewhere, each `width` bytes.
struct place {
  std::uint64_t begin = 0;   ///< bytes
  std::uint64_t length = 0;  ///< elements
  std::uint64_t width = 0;
};

/// The memory a step moves. Length 0: the step is dropped.
struct moved_memory {
  place src;
  place dst;
  std::uint64_t length = 0;  ///< elements
};

[[nodiscard]] std::uint64_t up_to_multiple(std::uint64_t x, std::uint64_t of) {
  return (x + of - 1) / of * of;
}

[[nodiscard]] std::uint64_t cut_at(std::uint64_t length, std::uint32_t piece, std::uint32_t pieces) {
  return length / pieces * piece + std::min<std::uint64_t>(piece, length % pieces);
}

class lowerer {
 public:
  lowerer(const algorithm& schedule, rank_t rank, const block_map& blocks, const lowering_options& options)
      : schedule_{schedule}, options_{options}, blocks_{blocks}, program_{schedule.program(rank)} {
    plan_.rank = rank;
    plan_.element_bytes = options.element_bytes;
    plan_.accumulator_bytes = std::max(options.element_bytes, options.accumulator_bytes);
  }

  result<plan> run() {
    if (auto fault = lay_out_scratch()) return *fault;
    const auto count = static_cast<step_index>(program_.steps().size());
    for (step_index i = 0; i < count; ++i) {
      if (auto fault = place_step(i)) return *fault;
    }
    if (std::uint64_t{count} * options_.pieces > std::numeric_limits<step_index>::max())
      return error{errc::invalid_argument, schedule_.name() + ": " + std::to_string(options_.pieces) +
                                               " pieces make a plan of more than 2^32 steps for rank " +
                                               std::to_string(plan_.rank) + ": use fewer"};
    plan_.steps.reserve(std::size_t{count} * options_.pieces);
    stands_for_.resize(count);
    for (std::uint32_t piece = 0; piece < options_.pieces; ++piece) {
      for (step_index i = 0; i < count; ++i) emit(i, piece);
    }
    link();
    return std::move(plan_);
  }

 private:
  error fault(step_index i, std::string what) const {
    return error{
        errc::invalid_argument,
        schedule_.name() + ": " + describe(plan_.rank, i, program_.steps()[i]) + " " + std::move(what)};
  }

  [[nodiscard]] std::uint64_t width_of(const scratch_shape& shape) const {
    return shape.content == scratch_content::running_fold ? plan_.accumulator_bytes : plan_.element_bytes;
  }

  std::optional<error> lay_out_scratch() {
    const bool runs = schedule_.unit() == step_unit::run_of_blocks;
    std::uint64_t end = 0;
    for (const scratch_shape& shape : program_.scratch()) {
      const auto length = length_of(shape);
      if (!length)
        return error{errc::invalid_argument,
                     schedule_.name() + ": rank " + std::to_string(plan_.rank) + ", scratch block " +
                         std::to_string(scratch_.size()) +
                         (shape.like == space::scratch
                              ? " serves blocks of any size: use a count that is a multiple of " +
                                    std::to_string(schedule_.what().blocks) + " and grain 1"
                              : " is shaped like a block that does not exist: correct the generator")};
      const std::uint64_t width = width_of(shape);
      end = up_to_multiple(end, runs ? width : scratch_alignment);
      scratch_.push_back({end, *length, width});
      end += *length * width;
    }
    plan_.scratch_bytes = up_to_multiple(end, scratch_alignment);
    return std::nullopt;
  }

  [[nodiscard]] std::optional<std::uint64_t> length_of(const scratch_shape& shape) const {
    if (shape.like != space::scratch) {
      const auto table = table_of(shape.like);
      return shape.block < table.size() ? std::optional{table[shape.block].length} : std::nullopt;
    }
    const std::uint64_t length = blocks_.in().front().length;
    for (const auto table : {blocks_.in(), blocks_.out()}) {
      for (const extent& e : table) {
        if (e.length != length) return std::nullopt;
      }
    }
    return length;
  }

  [[nodiscard]] std::size_t blocks_in(space where) const {
    return where == space::scratch ? scratch_.size() : table_of(where).size();
  }

  [[nodiscard]] std::span<const extent> table_of(space where) const {
    return where == space::in ? blocks_.in() : blocks_.out();
  }

  [[nodiscard]] place place_of(space where, std::uint32_t block) const {
    if (where == space::scratch) return scratch_[block];
    const extent& e = table_of(where)[block];
    return {e.offset * plan_.element_bytes, e.length, plan_.element_bytes};
  }

  [[nodiscard]] bool in_range(const block_ref& ref) const {
    const std::size_t blocks = blocks_in(ref.where);
    return ref.count > 0 && ref.block < blocks && ref.count <= blocks - ref.block;
  }

  /// A run of blocks as one place; no value: there are holes in between.
  [[nodiscard]] std::optional<place> run_of(const block_ref& ref) const {
    place whole = place_of(ref.where, ref.block);
    for (std::uint32_t b = 1; b < ref.count; ++b) {
      const place next = place_of(ref.where, ref.block + b);
      if (next.length == 0) continue;
      if (whole.length == 0) {
        whole = next;
        continue;
      }
      if (next.begin != whole.begin + whole.length * whole.width || next.width != whole.width)
        return std::nullopt;
      whole.length += next.length;
    }
    return whole;
  }

  std::optional<error> place_step(step_index i) {
    const step& s = program_.steps()[i];
    place ends[2];
    const std::pair<bool, const block_ref*> refs[2] = {{reads_src(s.kind), &s.src},
                                                       {writes_dst(s.kind), &s.dst}};
    for (int end = 0; end < 2; ++end) {
      const auto [used, ref] = refs[end];
      if (!used) continue;
      if (!in_range(*ref) || (ref->count > 1 && schedule_.unit() == step_unit::block))
        return fault(i, "names " + describe(*ref) + ", but there are " +
                            std::to_string(blocks_in(ref->where)) +
                            " blocks there, to be moved as the algorithm's unit says: correct the schedule");
      const auto run = run_of(*ref);
      if (!run)
        return fault(i, "takes " + describe(*ref) +
                            " as one run, but the block table leaves holes there: use a table without holes");
      ends[end] = *run;
    }
    if (refs[0].first && refs[1].first && ends[0].length != ends[1].length)
      return fault(i, "joins " + describe(s.src) + " and " + describe(s.dst) + ", which hold " +
                          std::to_string(ends[0].length) + " and " + std::to_string(ends[1].length) +
                          " elements: use a count the schedule's blocks divide, or another schedule");
    if (!has_kernel(s, is_wide(ends[0]), is_wide(ends[1])))
      return fault(i,
                   "needs accumulators where only elements may be, or on the right of a reduction: correct "
                   "the schedule, or lower it without accumulators");
    const std::uint64_t length = copies_onto_itself(s) ? 0 : std::max(ends[0].length, ends[1].length);
    moved_.push_back({ends[0], ends[1], length});
    return std::nullopt;
  }

  [[nodiscard]] bool is_wide(const place& p) const { return p.width > plan_.element_bytes; }

  /// begin, fold, finish, round or plain: see plan.hpp.
  [[nodiscard]] static bool has_kernel(const step& s, bool src_wide, bool dst_wide) {
    const bool wide_left = s.order == operand_order::local_first;
    switch (s.kind) {
      case step_kind::recv:
        return true;
      case step_kind::copy:
        return !(src_wide && dst_wide);
      case step_kind::reduce:
        return !src_wide && (!dst_wide || wide_left);
      case step_kind::recv_reduce:
        return src_wide ? wide_left : !dst_wide;
      case step_kind::recv_reduce_send:
      case step_kind::recv_reduce_copy_send:
        return !dst_wide && (!src_wide || wide_left);
      case step_kind::send:
      case step_kind::recv_copy_send:
        break;
    }
    return !src_wide && !dst_wide;
  }

  [[nodiscard]] bool copies_onto_itself(const step& s) const {
    if (options_.form != placement::in_place || s.kind != step_kind::copy) return false;
    const auto in_whole = [&](const block_ref& ref) -> std::optional<std::uint32_t> {
      if (ref.where == space::in) return ref.block + schedule_.what().in_place_input(plan_.rank);
      if (ref.where == space::out) return ref.block + schedule_.what().in_place_output(plan_.rank);
      return std::nullopt;
    };
    const auto from = in_whole(s.src);
    return from && from == in_whole(s.dst);
  }

  std::uint32_t edge(rank_t peer, channel_t channel, direction way) {
    const auto [found, added] =
        edge_index_.try_emplace({peer, channel, way}, static_cast<std::uint32_t>(plan_.edges.size()));
    if (added) plan_.edges.push_back({peer, channel, way, 0, 0});
    return found->second;
  }

  void emit(step_index i, std::uint32_t piece) {
    const step& s = program_.steps()[i];
    plan_step made{.kind = s.kind, .order = s.order, .src_space = s.src.where, .dst_space = s.dst.where};
    made.origin = i;
    if (sends(s.kind)) made.send_edge = edge(s.send_to, s.channel, direction::sending);
    if (receives(s.kind)) made.recv_edge = edge(s.recv_from, s.channel, direction::receiving);

    std::vector<step_index> waits;
    for (const step_index d : program_.dependencies(s))
      waits.insert(waits.end(), stands_for_[d].begin(), stands_for_[d].end());
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());

    const std::uint64_t begin = cut_at(moved_[i].length, piece, options_.pieces);
    const std::uint64_t length = cut_at(moved_[i].length, piece + 1, options_.pieces) - begin;
    if (length == 0) {
      stands_for_[i] = std::move(waits);  // passed on to whoever waits for this step
      return;
    }
    made.src_offset = moved_[i].src.begin + begin * moved_[i].src.width;
    made.dst_offset = moved_[i].dst.begin + begin * moved_[i].dst.width;
    made.src_wide = is_wide(moved_[i].src);
    made.dst_wide = is_wide(moved_[i].dst);
    made.length = length * plan_.element_bytes;
    made.dependencies = static_cast<std::uint32_t>(waits.size());
    if (made.send_edge != no_edge) made.send_sequence = count_message(made.send_edge, made.length);
    if (made.recv_edge != no_edge) made.recv_sequence = count_message(made.recv_edge, made.length);
    stands_for_[i] = {static_cast<step_index>(plan_.steps.size())};
    plan_.steps.push_back(made);
    waits_.insert(waits_.end(), waits.begin(), waits.end());
  }

  std::uint32_t count_message(std::uint32_t e, std::uint64_t length) {
    plan_.edges[e].bytes += length;
    return plan_.edges[e].messages++;
  }

  /// Turns "waits for" around into successor lists.
  void link() {
    const std::size_t count = plan_.steps.size();
    plan_.successor_begin.assign(count + 1, 0);
    for (const step_index before : waits_) ++plan_.successor_begin[before + 1];
    for (std::size_t i = 0; i < count; ++i) plan_.successor_begin[i + 1] += plan_.successor_begin[i];
    plan_.successor_list.resize(waits_.size());
    std::vector<std::uint32_t> next(plan_.successor_begin.begin(), plan_.successor_begin.end() - 1);
    std::size_t wait = 0;
    for (std::size_t after = 0; after < count; ++after) {
      for (std::uint32_t d = 0; d < plan_.steps[after].dependencies; ++d)
        plan_.successor_list[next[waits_[wait++]]++] = static_cast<step_index>(after);
    }
  }

  const algorithm& schedule_;
  const lowering_options& options_;
  const block_map& blocks_;
  rank_program program_;
  std::vector<place> scratch_;
  std::vector<moved_memory> moved_;                  ///< per step of the program
  std::vector<std::vector<step_index>> stands_for_;  ///< per step, whom its successors wait for in this piece
  std::vector<step_index> waits_;                    ///< per plan step in order, the plan steps it waits for
  std::map<std::tuple<rank_t, channel_t, direction>, std::uint32_t> edge_index_;
  plan plan_;
};

}  // namespace

std::uint32_t pieces_within(const block_map& blocks, std::uint64_t element_bytes,
                            std::uint64_t piece_bytes) noexcept {
  const std::uint64_t elements =
      std::max<std::uint64_t>(1, piece_bytes / std::max<std::uint64_t>(1, element_bytes));
  std::uint64_t longest = 0;
  for (const auto table : {blocks.in(), blocks.out()}) {
    for (const extent& e : table) longest = std::max(longest, e.length);
  }
  const std::uint64_t pieces = longest / elements + (longest % elements != 0 ? 1 : 0);
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(pieces, 1, std::numeric_limits<std::uint32_t>::max()));
}

result<plan> lower(const algorithm& schedule, rank_t rank, const block_map& blocks,
                   const lowering_options& options) {
  const definition& what = schedule.what();
  if (rank < 0 || rank >= what.ranks || options.element_bytes == 0 || options.pieces == 0)
    return error{errc::invalid_argument, schedule.name() + ": cannot lower for rank " + std::to_string(rank) +
                                             " with elements of " + std::to_string(options.element_bytes) +
                                             " bytes in " + std::to_string(options.pieces) +
                                             " pieces: ranks are 0 to " + std::to_string(what.ranks - 1) +
                                             ", bytes and pieces at least 1"};
  if (options.accumulator_bytes != 0 && options.accumulator_bytes < options.element_bytes)
    return error{errc::invalid_argument,
                 schedule.name() + ": accumulators of " + std::to_string(options.accumulator_bytes) +
                     " bytes for elements of " + std::to_string(options.element_bytes) +
                     ": they must not be smaller"};
  if (options.pieces > 1 && schedule.unit() == step_unit::run_of_blocks)
    return error{errc::invalid_argument, schedule.name() +
                                             ": moves runs of blocks, which cannot be cut into " +
                                             std::to_string(options.pieces) + " pieces: use 1"};
  if (!schedule.allows(options.form))
    return error{errc::invalid_argument,
                 schedule.name() + ": not sound " +
                     (options.form == placement::in_place ? "in place" : "out of place") +
                     ": call it the other way or choose another schedule"};
  if (blocks.in().size() != what.in_blocks() || blocks.out().size() != what.out_blocks())
    return error{errc::invalid_argument,
                 schedule.name() + ": the block map is for another definition: make it from this one"};
  return lowerer{schedule, rank, blocks, options}.run();
}

}  // namespace chorale::schedule
