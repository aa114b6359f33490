// The code that combines elements for one call: the kernels of its type and operation, or the user's
// function.
//
// Plain values; `find_combining` looks tables up and allocates nothing on success. Calls are for the engine's
// thread. Averages divide where a fold ends, if it is kept wide, else once on the finished value (`settle`),
// so that every rank holds the same bits.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/collective/call.hpp>
#include <chorale/kernels/host_fold.hpp>
#include <chorale/kernels/host_reduce.hpp>
#include <chorale/kernels/host_scale.hpp>

namespace chorale {

class combining {
 public:
  [[nodiscard]] static result<combining> find(const call& what, rank_t ranks);

  [[nodiscard]] std::size_t element_bytes() const noexcept { return element_; }
  [[nodiscard]] std::size_t accumulator_bytes() const noexcept { return folding_.accumulator_bytes; }
  [[nodiscard]] bool wide() const noexcept { return folding_.accumulator_bytes != element_; }

  /// out = left ⊕ right, elements all three.
  void combine(std::byte* out, const std::byte* left, const std::byte* right,
               std::size_t count) const noexcept {
    if (user_)
      user_(context_, out, left, right, count);
    else
      plain_(out, left, right, count);
  }

  // Folds kept in accumulators: see host_fold.hpp.
  void begin(std::byte* to, const std::byte* in, std::size_t count) const noexcept {
    folding_.begin(to, in, count);
  }
  void fold(std::byte* to, const std::byte* so_far, const std::byte* in, std::size_t count) const noexcept {
    folding_.fold(to, so_far, in, count);
  }
  void finish(std::byte* out, const std::byte* so_far, const std::byte* in,
              std::size_t count) const noexcept {
    if (divide_)
      folding_.finish_divided(out, so_far, in, count, ranks_);
    else
      folding_.finish(out, so_far, in, count);
  }
  void round(std::byte* out, const std::byte* so_far, std::size_t count) const noexcept {
    if (divide_)
      folding_.round_divided(out, so_far, count, ranks_);
    else
      folding_.round(out, so_far, count);
  }

  /// out = rounded(left ⊕ right), all there is to the fold of two ranks.
  void finish_two(std::byte* out, const std::byte* left, const std::byte* right,
                  std::size_t count) const noexcept;

  /// What is left to do on a value whose folds were not kept wide.
  [[nodiscard]] bool settles() const noexcept { return divide_ != nullptr; }
  void settle(std::byte* inout, std::size_t count) const noexcept { divide_(inout, count, ranks_); }

  /// What has to be done to this rank's own input first; `out` may be `in`.
  [[nodiscard]] bool scales() const noexcept { return scale_ != nullptr; }
  void scale(std::byte* out, const std::byte* in, std::size_t count, const call& what) const noexcept {
    scale_(out, in, count, what.scalar.data());
  }

 private:
  host_reduction plain_ = nullptr;
  host_folding folding_;
  host_division divide_ = nullptr;
  host_scaling scale_ = nullptr;
  user_reduction::function user_ = nullptr;
  void* context_ = nullptr;
  std::size_t element_ = 0;
  std::uint32_t ranks_ = 1;
};

}  // namespace chorale
