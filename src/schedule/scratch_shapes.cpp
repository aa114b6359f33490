#include <chorale/schedule/firing_order.hpp>
#include <chorale/schedule/scratch_shapes.hpp>

#include <limits>

namespace chorale::schedule {
namespace {

constexpr std::uint32_t unknown = ~std::uint32_t{0};
constexpr std::uint32_t several = unknown - 1;

/// Follows which input block the content of every place stems from.
class tracer {
 public:
  tracer(const program_set& set, const definition& what) : set_{set} {
    for (rank_t r = 0; r < set.ranks(); ++r) {
      auto& places = places_.emplace_back(set.locations(r), unknown);
      for (std::uint32_t b = 0; b < what.in_blocks() && what.reads_input(r); ++b)
        places[set.location(r, {space::in, b, 1})] = b;
      served_.emplace_back(set.program(r).scratch().size(), unknown);
    }
    for (const message& m : set.messages()) payloads_.emplace_back(set.at(m.sender).count(), unknown);
  }

  void follow(global_step s) {
    const step& it = set_.at(s);
    const rank_t rank = set_.rank_of(s);
    auto& places = places_[static_cast<std::size_t>(rank)];
    for (std::uint32_t b = 0; b < it.count(); ++b) {
      const std::uint32_t block =
          receives(it.kind) ? payloads_[set_.received_by(s)][b] : places[set_.location(rank, it.src) + b];
      if (writes_dst(it.kind)) {
        places[set_.location(rank, it.dst) + b] = block;
        if (it.dst.where == space::scratch) serve(rank, it.dst.block + b, block);
      }
      if (sends(it.kind)) payloads_[set_.sent_by(s)][b] = block;
    }
  }

  [[nodiscard]] std::vector<std::vector<scratch_shape>> shapes() const {
    std::vector<std::vector<scratch_shape>> all;
    for (const auto& served : served_) {
      auto& shapes = all.emplace_back();
      for (const std::uint32_t block : served) {
        const bool known = block != unknown && block != several;
        shapes.push_back(known ? scratch_shape{space::in, block} : scratch_shape{space::scratch, 0});
      }
    }
    return all;
  }

 private:
  void serve(rank_t rank, std::uint32_t scratch, std::uint32_t block) {
    std::uint32_t& served = served_[static_cast<std::size_t>(rank)][scratch];
    served = served == unknown || served == block ? block : several;
  }

  const program_set& set_;
  std::vector<std::vector<std::uint32_t>> places_;    ///< per rank and location
  std::vector<std::vector<std::uint32_t>> served_;    ///< per rank and scratch block
  std::vector<std::vector<std::uint32_t>> payloads_;  ///< per message
};

}  // namespace

result<std::vector<std::vector<scratch_shape>>> infer_scratch_shapes(const program_set& set,
                                                                     const definition& what) {
  const auto order = firing_order(set, std::numeric_limits<std::uint32_t>::max());
  if (!order) return order.error();
  tracer trace{set, what};
  for (const global_step s : *order) trace.follow(s);
  return trace.shapes();
}

}  // namespace chorale::schedule
