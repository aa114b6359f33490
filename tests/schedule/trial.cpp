#include "trial.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

namespace trials {
namespace {

using cs::extent;

constexpr float mark = -12345.5F;
constexpr std::uint64_t margin = 3;  ///< elements around a buffer

/// The block tables of one rank and the size of the buffers they need.
struct tables {
  std::vector<extent> in;
  std::vector<extent> out;
  std::uint64_t in_size = 0;
  std::uint64_t out_size = 0;
};

std::uint64_t end_of(const std::vector<extent>& table) {
  std::uint64_t end = 0;
  for (const extent& e : table) end = std::max(end, e.offset + e.length);
  return end;
}

/// Lengths that all ranks agree on, made up as they are asked for.
class lengths {
 public:
  lengths(std::uint64_t seed, std::uint64_t longest) : random_{seed}, longest_{longest} {}
  std::uint64_t of(const cs::block_length& which) {
    const auto [found, added] = made_.try_emplace({which.rank, which.block}, 0);
    if (added) found->second = random_() % 4 == 0 ? 0 : random_() % (longest_ + 1);
    return found->second;
  }

 private:
  std::mt19937_64 random_;
  std::uint64_t longest_;
  std::map<std::pair<rank_t, std::uint32_t>, std::uint64_t> made_;
};

std::uint64_t place(std::vector<extent>& table, layout how, std::mt19937_64& random) {
  std::vector<std::size_t> order(table.size());
  std::iota(order.begin(), order.end(), 0);
  if (how == layout::spread) std::shuffle(order.begin(), order.end(), random);
  std::uint64_t end = 0;
  for (const std::size_t b : order) {
    if (how == layout::spread) end += random() % 3;
    table[b].offset = end;
    end += table[b].length;
  }
  return end;
}

class stage {
 public:
  stage(const cs::algorithm& a, const trial& t)
      : a_{a}, what_{a.what()}, t_{t}, lengths_{t.seed, t.count}, random_{t.seed + 1} {}

  std::string run(bool left_fold) {
    for (rank_t r = 0; r < what_.ranks; ++r) {
      tables_.push_back(t_.blocks == layout::even ? even_tables() : own_tables(r));
      if (auto wrong = set_up(r); !wrong.empty()) return wrong;
    }
    const auto before = buffers_;
    std::vector<reference::rank_memory<float>> memory;
    for (rank_t r = 0; r < what_.ranks; ++r) memory.push_back({input(r), output(r), {}});
    std::string wrong;
    if (t_.wide)
      wrong = reference::executor<float, std::plus<>, double>{std::move(plans_), std::move(memory),
                                                              std::plus<>{}, t_.seed}
                  .run();
    else
      wrong = reference::executor<float, std::plus<>>{std::move(plans_), std::move(memory), std::plus<>{},
                                                      t_.seed}
                  .run();
    if (wrong.empty()) wrong = judge_outputs(left_fold);
    if (wrong.empty()) wrong = judge_the_rest(before);
    return wrong;
  }

 private:
  struct buffers {
    std::vector<float> in;  ///< of both, in place
    std::vector<float> out;
    friend bool operator==(const buffers&, const buffers&) = default;
  };

  bool shared() const { return t_.form == cs::placement::in_place; }

  tables even_tables() const {
    const auto map = cs::block_map::even(what_, t_.count);
    tables made{{map.in().begin(), map.in().end()}, {map.out().begin(), map.out().end()}};
    made.in_size = what_.in_blocks() / what_.blocks * t_.count;
    made.out_size = what_.out_blocks() / what_.blocks * t_.count;
    return made;
  }

  /// Tables of unequal lengths. A length the rank has no business with is 0 unless the algorithm needs it.
  tables own_tables(rank_t rank) {
    tables made;
    const auto length = [&](const cs::block_length& which) {
      return which.known || a_.lengths() == cs::share_lengths::all_ranks_know ? lengths_.of(which) : 0;
    };
    for (std::uint32_t b = 0; b < what_.in_blocks(); ++b)
      made.in.push_back({0, length(what_.length_of_input(rank, b))});
    for (std::uint32_t b = 0; b < what_.out_blocks(); ++b)
      made.out.push_back({0, length(what_.length_of_output(rank, b))});
    if (!shared() || made.in.size() == made.out.size()) {
      made.in_size = place(made.in, t_.blocks, random_);
      made.out_size = place(made.out, t_.blocks, random_);
      if (shared()) made.out = made.in;  // one block, one place
      return made;
    }
    // The smaller buffer is a part of the larger: its blocks follow each other there too.
    const layout how = what_.blocks == 1 ? t_.blocks : layout::packed;
    auto& larger = made.in.size() > made.out.size() ? made.in : made.out;
    auto& smaller = made.in.size() > made.out.size() ? made.out : made.in;
    place(larger, how, random_);
    place(smaller, layout::packed, random_);
    made.in_size = end_of(made.in);
    made.out_size = end_of(made.out);
    return made;
  }

  /// Where a view begins in the one buffer of the in-place form. Ranks that have only the smaller buffer have
  /// it at the start.
  std::uint64_t input_begin(rank_t rank) const {
    const bool inside = shared() && what_.in_blocks() < what_.out_blocks() && what_.writes_output(rank);
    return inside ? tables_[static_cast<std::size_t>(rank)].out[what_.in_place_input(rank)].offset : 0;
  }
  std::uint64_t output_begin(rank_t rank) const {
    const bool inside = shared() && what_.out_blocks() < what_.in_blocks() && what_.reads_input(rank);
    return inside ? tables_[static_cast<std::size_t>(rank)].in[what_.in_place_output(rank)].offset : 0;
  }

  std::string set_up(rank_t rank) {
    const tables& mine = tables_.back();
    auto blocks = cs::block_map::from_tables(what_, mine.in, mine.out);
    auto made = cs::lower(a_, rank, *blocks,
                          {.element_bytes = sizeof(float),
                           .accumulator_bytes = t_.wide ? sizeof(double) : 0,
                           .form = t_.form,
                           .pieces = t_.pieces});
    if (!made) return made.error().message();
    plans_.push_back(std::move(*made));
    buffers fresh;
    fresh.in.assign((shared() ? std::max(mine.in_size, mine.out_size) : mine.in_size) + 2 * margin, mark);
    if (!shared()) fresh.out.assign(mine.out_size + 2 * margin, mark);
    buffers_.push_back(std::move(fresh));
    inputs_.emplace_back();
    if (!what_.reads_input(rank)) {
      inputs_.back().assign(what_.in_blocks(), {});
      return {};
    }
    std::uniform_real_distribution<float> values{-1000.0F, 1000.0F};
    for (const extent& e : mine.in) {
      std::vector<float> block(e.length);
      for (float& x : block) x = values(random_);
      std::copy(block.begin(), block.end(), input(rank) + e.offset);
      inputs_.back().push_back(std::move(block));
    }
    return {};
  }

  float* input(rank_t rank) {
    return buffers_[static_cast<std::size_t>(rank)].in.data() + margin + input_begin(rank);
  }
  float* output(rank_t rank) {
    buffers& mine = buffers_[static_cast<std::size_t>(rank)];
    return (shared() ? mine.in : mine.out).data() + margin + output_begin(rank);
  }

  std::string judge_outputs(bool left_fold) {
    std::map<std::uint32_t, const float*> common;
    for (rank_t r = 0; r < what_.ranks; ++r) {
      const auto& table = tables_[static_cast<std::size_t>(r)].out;
      for (std::uint32_t b = 0; b < table.size(); ++b) {
        const cs::requirement need = what_.required(r, b);
        if (need.first == need.last || !what_.writes_output(r)) continue;
        float* got = output(r) + table[b].offset;
        for (std::uint64_t i = 0; i < table[b].length; ++i) {
          if (auto wrong = judge_element(need, i, got[i], left_fold); !wrong.empty())
            return "rank " + std::to_string(r) + ", out[" + std::to_string(b) + "], element " +
                   std::to_string(i) + ": " + wrong;
          if (what_.what != cs::collective::all_reduce) continue;
          if (const float* first = common.try_emplace(b, got).first->second; first[i] != got[i])
            return "rank " + std::to_string(r) + " holds other bits than rank 0";
        }
      }
    }
    return {};
  }

  std::string judge_element(const cs::requirement& need, std::uint64_t i, float got, bool left_fold) const {
    const auto operand = [&](rank_t q) { return inputs_[static_cast<std::size_t>(q)][need.block][i]; };
    float fold = operand(need.first);
    double exact = fold;
    double magnitude = std::abs(exact);
    for (rank_t q = need.first + 1; q < need.last; ++q) {
      fold += operand(q);
      exact += operand(q);
      magnitude += std::abs(double{operand(q)});
    }
    if (t_.wide) fold = static_cast<float>(exact);
    const bool single = need.last == need.first + 1;
    const bool good = left_fold || single
                          ? got == fold
                          : std::abs(got - exact) <= 1e-7 * (need.last - need.first) * magnitude + 1e-30;
    return good ? "" : std::to_string(got) + " instead of " + std::to_string(exact);
  }

  /// Paints over what the call may write; the rest must be as it was.
  std::string judge_the_rest(std::vector<buffers> before) {
    for (rank_t r = 0; r < what_.ranks; ++r) {
      const auto at = static_cast<std::size_t>(r);
      buffers& then = before[at];
      buffers now = buffers_[at];
      const auto repaint = [&](float* first, std::uint64_t length) {
        std::vector<float>& live = shared() ? buffers_[at].in : buffers_[at].out;
        const auto from = static_cast<std::size_t>(first - live.data());
        for (std::uint64_t i = from; i < from + length; ++i)
          (shared() ? then.in : then.out)[i] = (shared() ? now.in : now.out)[i] = 0.0F;
      };
      if (what_.writes_output(r)) {
        for (const extent& e : tables_[at].out) repaint(output(r) + e.offset, e.length);
      }
      if (now != then) return "rank " + std::to_string(r) + ": memory outside the output was written";
    }
    return {};
  }

  const cs::algorithm& a_;
  const cs::definition& what_;
  trial t_;
  lengths lengths_;
  std::mt19937_64 random_;
  std::vector<tables> tables_;
  std::vector<cs::plan> plans_;
  std::vector<buffers> buffers_;
  std::vector<std::vector<std::vector<float>>> inputs_;  ///< per rank and block
};

}  // namespace

std::string describe(const cs::algorithm& a, const trial& t) {
  const char* layouts[] = {"even", "packed", "spread"};
  return a.name() + ", " + std::string{name_of(a.what().what)} + ", " + std::to_string(a.what().ranks) +
         " ranks, root " + std::to_string(a.what().root) + ", count " + std::to_string(t.count) +
         ", pieces " + std::to_string(t.pieces) +
         (t.form == cs::placement::in_place ? ", in place, " : ", ") + layouts[static_cast<int>(t.blocks)] +
         (t.wide ? ", wide" : "") + ", seed " + std::to_string(t.seed);
}

std::string attempt(const cs::algorithm& a, const trial& t, bool left_fold) {
  return stage{a, t}.run(left_fold);
}

}  // namespace trials
