#include <chorale/schedule/nesting.hpp>

#include <algorithm>

namespace chorale::schedule {
namespace {

class nested_steps {
 public:
  nested_steps(rank_program& outer, const rank_program& inner, const nesting& where)
      : outer_{outer}, inner_{inner}, where_{where} {
    for (const scratch_shape& shape : inner.scratch()) scratch_.push_back(outer.add_scratch(mapped(shape)));
  }

  std::vector<step_index> add() {
    stands_for_.resize(inner_.steps().size());
    std::vector<bool> waited_for(inner_.steps().size(), false);
    for (step_index i = 0; i < stands_for_.size(); ++i) {
      const step& s = inner_.steps()[i];
      std::vector<step_index> after;
      for (const step_index d : inner_.dependencies(s)) {
        waited_for[d] = true;
        after.insert(after.end(), stands_for_[d].begin(), stands_for_[d].end());
      }
      if (after.empty()) after.assign(where_.after.begin(), where_.after.end());
      stands_for_[i] = add_step(s, without_repeats(std::move(after)));
    }
    std::vector<step_index> ends;
    for (step_index i = 0; i < stands_for_.size(); ++i)
      if (!waited_for[i]) ends.insert(ends.end(), stands_for_[i].begin(), stands_for_[i].end());
    return without_repeats(std::move(ends));
  }

 private:
  static std::vector<step_index> without_repeats(std::vector<step_index> steps) {
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    return steps;
  }

  /// A copy of a block onto itself stands for what it waited for.
  std::vector<step_index> add_step(step s, std::vector<step_index> after) {
    if (reads_src(s.kind)) s.src = mapped(s.src);
    if (writes_dst(s.kind)) s.dst = mapped(s.dst);
    if (sends(s.kind)) s.send_to = where_.ranks[static_cast<std::size_t>(s.send_to)];
    if (receives(s.kind)) s.recv_from = where_.ranks[static_cast<std::size_t>(s.recv_from)];
    if (s.kind == step_kind::copy && s.src == s.dst) return after;
    return {outer_.add(s, after)};
  }

  [[nodiscard]] block_ref mapped(const block_ref& ref) const {
    if (ref.where == space::scratch) return {space::scratch, scratch_[ref.block], 1};
    return (ref.where == space::in ? where_.in : where_.out)[ref.block];
  }

  [[nodiscard]] scratch_shape mapped(scratch_shape shape) const {
    if (shape.like == space::scratch) return shape;
    const block_ref like = mapped(block_ref{shape.like, shape.block, 1});
    if (like.where == space::scratch) {
      const scratch_content content = shape.content;
      shape = outer_.scratch()[like.block];
      shape.content = content;
      return shape;
    }
    return {like.where, like.block, shape.content};
  }

  rank_program& outer_;
  const rank_program& inner_;
  const nesting& where_;
  std::vector<std::uint32_t> scratch_;
  std::vector<std::vector<step_index>> stands_for_;
};

}  // namespace

std::vector<step_index> add_nested(rank_program& outer, const rank_program& inner, const nesting& where) {
  return nested_steps{outer, inner, where}.add();
}

}  // namespace chorale::schedule
