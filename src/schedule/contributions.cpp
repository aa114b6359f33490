#include <chorale/schedule/contributions.hpp>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>

namespace chorale::schedule {
namespace {

constexpr std::uint64_t prime = (std::uint64_t{1} << 61) - 1;
constexpr std::uint32_t undefined = ~std::uint32_t{0};
constexpr step_index nobody = ~step_index{0};

/// A bijective mixer (splitmix64's finaliser).
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// The value of (left ⊕ right) in a free magma, hashed: order and grouping both count.
constexpr std::uint64_t join(std::uint64_t left, std::uint64_t right) { return mix(mix(left) ^ (right * 3)); }

struct value {
  std::uint32_t block = undefined;  ///< the input block it stems from
  rank_t origin = no_rank;          ///< one of the ranks that contributed
  std::uint64_t sum = 0;            ///< Σ random(rank, block) over contributions, modulo `prime`
  std::uint64_t tree = 0;           ///< hash of the expression
};

class interpreter {
 public:
  interpreter(const program_set& set, const definition& what, const check_options& options)
      : set_{set}, what_{what}, options_{options} {
    if (set.ranks() <= options.exact_up_to) words_ = (static_cast<std::size_t>(set.ranks()) + 63) / 64;
    base_.push_back(0);
    for (rank_t r = 0; r < set.ranks(); ++r) base_.push_back(base_.back() + set.locations(r));
    memory_.resize(base_.back());
    writer_.assign(base_.back(), nobody);
    sets_.assign(base_.back() * words_, 0);
    std::size_t blocks = 0;
    for (const message& m : set.messages()) {
      payload_begin_.push_back(blocks);
      blocks += set.at(m.sender).count();
    }
    payload_.resize(blocks);
    payload_sets_.assign(blocks * words_, 0);
    load_inputs();
  }

  result<> run(std::span<const global_step> order) {
    for (const global_step s : order) {
      for (std::uint32_t b = 0; b < set_.at(s).count(); ++b) {
        if (auto sound = run_block(s, b); !sound) return sound;
      }
    }
    return {};
  }

  result<expression> judge() {
    bool folded = true;
    bool same = true;
    expected_.resize(what_.in_blocks());
    for (rank_t r = 0; r < set_.ranks(); ++r) {
      for (std::uint32_t b = 0; b < what_.out_blocks(); ++b) {
        const requirement need = what_.required(r, b);
        if (need.first == need.last) continue;
        const std::size_t at = where(r, {space::out, b, 1}, 0);
        const value wanted = wanted_value(need);
        if (!matches(at, need, wanted)) return wrong_output(r, b, at, need);
        folded = folded && memory_[at].tree == wanted.tree;
        const std::size_t first = where(0, {space::out, b, 1}, 0);
        same = same && (what_.what != collective::all_reduce || memory_[at].tree == memory_[first].tree);
        if (!same && options_.required != expression::any) return different_expression(r, b, at);
        if (!folded && options_.required == expression::left_fold) return not_a_fold(r, b, at);
      }
    }
    return folded ? expression::left_fold : same ? expression::same_everywhere : expression::any;
  }

 private:
  struct operand {
    value* what;
    std::uint64_t* set;
  };

  [[nodiscard]] std::size_t where(rank_t rank, const block_ref& ref, std::uint32_t b) const {
    return base_[static_cast<std::size_t>(rank)] + set_.location(rank, ref) + b;
  }
  operand in_memory(std::size_t at) { return {&memory_[at], sets_.data() + at * words_}; }
  operand in_message(message_index m, std::uint32_t b) {
    const std::size_t at = payload_begin_[m] + b;
    return {&payload_[at], payload_sets_.data() + at * words_};
  }
  void assign(operand to, operand from) const {
    *to.what = *from.what;
    std::copy_n(from.set, words_, to.set);
  }

  [[nodiscard]] value leaf(rank_t rank, std::uint32_t block) const {
    const std::uint64_t name = static_cast<std::uint64_t>(rank) << 32 | block;
    return {block, rank, mix(options_.seed ^ mix(name)) % prime, mix(~name)};
  }

  void load_inputs() {
    for (rank_t r = 0; r < set_.ranks(); ++r) {
      if (!what_.reads_input(r)) continue;
      for (std::uint32_t b = 0; b < what_.in_blocks(); ++b) {
        const std::size_t at = where(r, {space::in, b, 1}, 0);
        memory_[at] = leaf(r, b);
        if (words_ > 0) sets_[at * words_ + static_cast<std::size_t>(r) / 64] |= std::uint64_t{1} << (r % 64);
      }
    }
  }

  /// The step for its b-th block: take the operands, combine, store, send.
  result<> run_block(global_step s, std::uint32_t b) {
    const step& it = set_.at(s);
    const rank_t rank = set_.rank_of(s);
    const bool arrives = receives(it.kind);
    operand arriving = arrives ? in_message(set_.received_by(s), b) : in_memory(where(rank, it.src, b));
    if (!arrives && arriving.what->block == undefined) return reads_undefined(s, it.src, b);
    if (reduces(it.kind)) {
      const block_ref& local_ref = it.kind == step_kind::reduce ? it.dst : it.src;
      const operand local = in_memory(where(rank, local_ref, b));
      if (local.what->block == undefined) return reads_undefined(s, local_ref, b);
      if (auto sound = combine(s, local, arriving); !sound) return sound;
      arriving = {&result_, result_set_.data()};
    }
    if (writes_dst(it.kind)) {
      if (!fits(rank, it.dst, b, *arriving.what))
        return set_.fault(s, "puts a value of input block " + std::to_string(arriving.what->block) +
                                 " into " + describe(block_ref{it.dst.where, it.dst.block + b, 1}) +
                                 ", which is sized like another block");
      const std::size_t at = where(rank, it.dst, b);
      assign(in_memory(at), arriving);
      writer_[at] = set_.index_of(s);
    }
    if (sends(it.kind)) assign(in_message(set_.sent_by(s), b), arriving);
    return {};
  }

  /// Whether a value is as long as its place, for all lengths the algorithm takes. This is what makes the two
  /// ends of an edge agree on a message's length.
  [[nodiscard]] bool fits(rank_t rank, block_ref dst, std::uint32_t b, const value& v) const {
    dst.block += b;
    if (dst.where == space::scratch) {
      const scratch_shape& shape = set_.program(rank).scratch()[dst.block];
      if (shape.like == space::scratch) return set_.lengths() == share_lengths::equal;
      dst = {shape.like, shape.block, 1};
    }
    // Blocks cut alike from shares cut alike.
    if (set_.lengths() == share_lengths::equal) return dst.block % what_.blocks == v.block % what_.blocks;
    const block_length length = dst.where == space::in ? what_.length_of_input(rank, dst.block)
                                                       : what_.length_of_output(rank, dst.block);
    if (!length.known && set_.lengths() != share_lengths::all_ranks_know) return false;
    return length.block == v.block && (length.rank == no_rank || length.rank == v.origin);
  }

  /// local ⊕ arriving, in the step's order, into result_.
  result<> combine(global_step s, operand local, operand arriving) {
    if (local.what->block != arriving.what->block)
      return set_.fault(s, "combines a value of input block " + std::to_string(local.what->block) +
                               " with one of block " + std::to_string(arriving.what->block));
    const bool local_first = set_.at(s).order == operand_order::local_first;
    const value& left = local_first ? *local.what : *arriving.what;
    const value& right = local_first ? *arriving.what : *local.what;
    result_ = {left.block, left.origin, (left.sum + right.sum) % prime, join(left.tree, right.tree)};
    result_set_.resize(words_);
    for (std::size_t w = 0; w < words_; ++w) {
      if (const std::uint64_t both = local.set[w] & arriving.set[w]; both != 0) {
        const auto twice = static_cast<int>(w * 64) + std::countr_zero(both);
        return set_.fault(s, "takes the contribution of rank " + std::to_string(twice) + " to block " +
                                 std::to_string(left.block) + " a second time");
      }
      result_set_[w] = local.set[w] | arriving.set[w];
    }
    return {};
  }

  error reads_undefined(global_step s, const block_ref& ref, std::uint32_t b) const {
    return set_.fault(
        s, "reads " + describe(block_ref{ref.where, ref.block + b, 1}) + " before anything was put there");
  }

  /// The left fold over the run the requirement names; whole runs are kept, they are asked for again.
  value wanted_value(const requirement& need) {
    const bool whole = need.first == 0 && need.last == what_.ranks;
    if (whole && expected_[need.block]) return *expected_[need.block];
    value fold = leaf(need.first, need.block);
    for (rank_t q = need.first + 1; q < need.last; ++q) {
      const value next = leaf(q, need.block);
      fold = {need.block, need.first, (fold.sum + next.sum) % prime, join(fold.tree, next.tree)};
    }
    if (whole) expected_[need.block] = fold;
    return fold;
  }

  [[nodiscard]] bool contributes(std::size_t at, rank_t rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return (sets_[at * words_ + r / 64] >> (r % 64) & 1) != 0;
  }

  [[nodiscard]] bool matches(std::size_t at, const requirement& need, const value& wanted) const {
    if (memory_[at].block != wanted.block || memory_[at].sum != wanted.sum) return false;
    if (words_ == 0) return true;
    for (rank_t q = 0; q < set_.ranks(); ++q) {
      if (contributes(at, q) != (q >= need.first && q < need.last)) return false;
    }
    return true;
  }

  /// Blames the last writer of the block, or its lack.
  [[nodiscard]] error blame(rank_t rank, std::uint32_t b, std::size_t at, const std::string& what) const {
    const std::string block = describe(block_ref{space::out, b, 1});
    if (writer_[at] != nobody)
      return set_.fault(set_.first_step(rank) + writer_[at], "leaves " + block + " wrong: " + what);
    return error{errc::invalid_argument,
                 "rank " + std::to_string(rank) + ": no step writes " + block + ": " + what, rank};
  }

  [[nodiscard]] error wrong_output(rank_t rank, std::uint32_t b, std::size_t at,
                                   const requirement& need) const {
    const value& found = memory_[at];
    if (found.block == undefined)
      return blame(rank, b, at, "it must hold input block " + std::to_string(need.block));
    if (found.block != need.block)
      return blame(rank, b, at,
                   "it holds input block " + std::to_string(found.block) + " instead of " +
                       std::to_string(need.block));
    std::string text = "its contributions are not those of ranks " + std::to_string(need.first) + " to " +
                       std::to_string(need.last - 1) + ", each once";
    for (rank_t q = 0; words_ > 0 && q < set_.ranks(); ++q) {
      const bool wanted = q >= need.first && q < need.last;
      if (contributes(at, q) == wanted) continue;
      text += wanted ? "; rank " + std::to_string(q) + " is missing"
                     : "; rank " + std::to_string(q) + " does not belong";
      break;
    }
    return blame(rank, b, at, text);
  }
  [[nodiscard]] error different_expression(rank_t rank, std::uint32_t b, std::size_t at) const {
    return blame(rank, b, at,
                 "it is computed by another expression than on rank 0, so the bits may differ between ranks");
  }
  [[nodiscard]] error not_a_fold(rank_t rank, std::uint32_t b, std::size_t at) const {
    return blame(rank, b, at, "it is not the left fold in rank order");
  }

  const program_set& set_;
  const definition& what_;
  const check_options& options_;
  std::size_t words_ = 0;  ///< per exact set; 0: random sums only
  std::vector<std::size_t> base_;
  std::vector<value> memory_;
  std::vector<std::uint64_t> sets_;
  std::vector<step_index> writer_;
  std::vector<std::size_t> payload_begin_;
  std::vector<value> payload_;
  std::vector<std::uint64_t> payload_sets_;
  value result_;
  std::vector<std::uint64_t> result_set_;
  std::vector<std::optional<value>> expected_;
};

}  // namespace

result<expression> check_contributions(const program_set& set, const definition& what,
                                       std::span<const global_step> order, const check_options& options) {
  interpreter machine{set, what, options};
  if (auto sound = machine.run(order); !sound) return sound.error();
  return machine.judge();
}

}  // namespace chorale::schedule
