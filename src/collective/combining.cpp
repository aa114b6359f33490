#include <chorale/collective/combining.hpp>
#include <chorale/collective/selection.hpp>

#include <algorithm>

namespace chorale {

result<combining> combining::find(const call& what, rank_t ranks) {
  combining found;
  const bool reduces_elements = reduces(what.kind) && !what.carries_nothing();
  // Where nothing moves a token does: one f32.
  const dtype type = what.carries_nothing() ? dtype::f32 : what.type;
  found.element_ = size_of(type);
  found.folding_.accumulator_bytes = found.element_;
  found.ranks_ = static_cast<std::uint32_t>(ranks);
  if (what.op == reduction::user && reduces_elements) {
    found.user_ = what.user.combine;
    found.context_ = what.user.context;
    return found;
  }
  const reduction op = reduces_elements ? what.op : reduction::sum;
  if (!reduces_elements && !what.carries_nothing()) return found;
  auto plain = find_host_reduction(type, op);
  if (!plain) return std::move(plain).error();
  found.plain_ = *plain;
  if (!reduces_elements) return found;
  if (folds_wider(what)) {
    auto folding = find_host_folding(type, op);
    if (!folding) return std::move(folding).error();
    found.folding_ = *folding;
  }
  if (op == reduction::avg) {
    auto division = find_host_division(type);
    if (!division) return std::move(division).error();
    found.divide_ = *division;
  }
  if (op == reduction::premul_sum) {
    auto scaling = find_host_scaling(type);
    if (!scaling) return std::move(scaling).error();
    found.scale_ = *scaling;
  }
  return found;
}

void combining::finish_two(std::byte* out, const std::byte* left, const std::byte* right,
                           std::size_t count) const noexcept {
  if (!divide_) return combine(out, left, right, count);  // rounds once by itself
  constexpr std::size_t most = 512;
  alignas(64) std::byte so_far[most * sizeof(float)];
  for (std::size_t done = 0; done < count; done += most) {
    const std::size_t now = std::min(most, count - done);
    const std::size_t at = done * element_;
    begin(so_far, left + at, now);
    finish(out + at, so_far, right + at, now);
  }
}

}  // namespace chorale
