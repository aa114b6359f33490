// Vectors halved between partners while they are reduced, doubled while they are gathered: log n messages and
// little more than the vector itself.
//
// Halving for all_reduce begins with the nearest partner, so that sums cover neighbouring ranks and the
// largest messages go to neighbours; for reduce_scatter it begins with the farthest, because only then a
// partner's final piece is a run of shares in rank order.

#include <chorale/schedule/generator_arguments.hpp>
#include <chorale/schedule/generators.hpp>
#include <chorale/schedule/partners.hpp>

#include <ranges>
#include <vector>

namespace chorale::schedule {
namespace {

/// Blocks first … last − 1.
struct block_run {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  [[nodiscard]] block_ref in(space where, std::uint32_t base = 0) const {
    return {where, first - base, last - first};
  }
};

/// One exchange of halves: I keep one, my partner the other.
struct halving {
  rank_t peer = 0;
  bool upper = false;  ///< mine is the upper half
  block_run kept;
  block_run given;
  step_index sent = 0;
};

operand_order order_in(const halving& round) {
  return round.upper ? operand_order::arriving_first : operand_order::local_first;
}

/// Places first … last − 1, halved around the partner at `distance`. `run_of` makes them blocks.
template <class RunOf>
halving halve(const partner_places& places, rank_t place, rank_t distance, rank_t& first, rank_t& last,
              RunOf run_of) {
  const rank_t middle = first + (last - first) / 2;
  const bool upper = (place & distance) != 0;
  halving round{.peer = places.rank_of(place ^ distance),
                .upper = upper,
                .kept = upper ? run_of(middle, last) : run_of(first, middle),
                .given = upper ? run_of(first, middle) : run_of(middle, last)};
  (upper ? first : last) = middle;
  return round;
}

rank_program all_reduce_program(rank_t rank, rank_t ranks) {
  rank_program program;
  const partner_places places{ranks};
  const block_run whole{0, static_cast<std::uint32_t>(places.partners())};
  if (ranks == 1) {
    program.add({.kind = step_kind::copy, .src = whole.in(space::in), .dst = whole.in(space::out)});
    return program;
  }
  if (places.stands_aside(rank)) {
    const auto sent = program.add({.kind = step_kind::send, .send_to = rank - 1, .src = whole.in(space::in)});
    program.add({.kind = step_kind::recv, .recv_from = rank - 1, .dst = whole.in(space::out)}, {sent});
    return program;
  }
  space partial = space::in;
  std::vector<step_index> made;
  if (places.paired(rank)) {
    made = {program.add({.kind = step_kind::recv_reduce,
                         .recv_from = rank + 1,
                         .src = whole.in(space::in),
                         .dst = whole.in(space::out)})};
    partial = space::out;
  }
  const auto as_blocks = [](rank_t first, rank_t last) {
    return block_run{static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last)};
  };
  std::vector<halving> rounds;
  rank_t first = 0;
  rank_t last = places.partners();
  for (rank_t distance = 1; distance < places.partners(); distance *= 2) {
    halving round = halve(places, places.place_of(rank), distance, first, last, as_blocks);
    round.sent =
        program.add({.kind = step_kind::send, .send_to = round.peer, .src = round.given.in(partial)}, made);
    made = {program.add({.kind = step_kind::recv_reduce,
                         .order = order_in(round),
                         .recv_from = round.peer,
                         .src = round.kept.in(partial),
                         .dst = round.kept.in(space::out)},
                        made)};
    partial = space::out;
    rounds.push_back(round);
  }
  // Back through the same partners: what I gave away comes back whole.
  for (const halving& round : std::views::reverse(rounds)) {
    program.add({.kind = step_kind::send, .send_to = round.peer, .src = round.kept.in(space::out)}, made);
    made.push_back(program.add(
        {.kind = step_kind::recv, .recv_from = round.peer, .dst = round.given.in(space::out)}, {round.sent}));
  }
  if (places.paired(rank))
    program.add({.kind = step_kind::send, .send_to = rank + 1, .src = whole.in(space::out)}, made);
  return program;
}

/// Partial sums live in scratch from the first reduction on, and only the part that is still mine.
class scattering {
 public:
  scattering(rank_t rank, rank_t ranks) : rank_{rank}, places_{ranks} {}

  rank_program program() && {
    const block_run all{0, static_cast<std::uint32_t>(places_.rank_of(places_.partners()))};
    const block_ref result{space::out, 0, 1};
    if (places_.stands_aside(rank_)) {
      const auto sent =
          program_.add({.kind = step_kind::send, .send_to = rank_ - 1, .src = all.in(space::in)});
      program_.add({.kind = step_kind::recv, .recv_from = rank_ - 1, .dst = result}, {sent});
      return std::move(program_);
    }
    if (all.last == 1) {
      program_.add({.kind = step_kind::copy, .src = {space::in, 0, 1}, .dst = result});
      return std::move(program_);
    }
    const bool paired = places_.paired(rank_);
    if (paired) reduce(rank_ + 1, operand_order::local_first, all, scratch_for(all));
    rank_t first = 0;
    rank_t last = places_.partners();
    for (rank_t distance = places_.partners() / 2; distance > 0; distance /= 2) {
      const halving round = halve(places_, places_.place_of(rank_), distance, first, last,
                                  [this](rank_t from, rank_t to) { return blocks_of(from, to); });
      program_.add({.kind = step_kind::send, .send_to = round.peer, .src = partial(round.given)}, made_);
      const bool to_result = distance == 1 && !paired;
      reduce(round.peer, order_in(round), round.kept, to_result ? result : scratch_for(round.kept));
    }
    if (paired) {
      const auto own = static_cast<std::uint32_t>(rank_);
      program_.add({.kind = step_kind::send, .send_to = rank_ + 1, .src = partial({own + 1, own + 2})},
                   made_);
      program_.add({.kind = step_kind::copy, .src = partial({own, own + 1}), .dst = result}, made_);
    }
    return std::move(program_);
  }

 private:
  [[nodiscard]] block_run blocks_of(rank_t first_place, rank_t last_place) const {
    return {static_cast<std::uint32_t>(places_.rank_of(first_place)),
            static_cast<std::uint32_t>(places_.rank_of(last_place))};
  }
  [[nodiscard]] block_ref partial(const block_run& run) const {
    return in_scratch_ ? run.in(space::scratch, base_) : run.in(space::in);
  }
  /// Made for the first sums, which cover all later ones.
  block_ref scratch_for(const block_run& run) {
    if (program_.scratch().empty()) {
      base_ = run.first;
      for (std::uint32_t b = run.first; b < run.last; ++b) program_.add_scratch({space::in, b});
    }
    return run.in(space::scratch, base_);
  }
  void reduce(rank_t peer, operand_order order, const block_run& kept, block_ref to) {
    made_ = {program_.add(
        {.kind = step_kind::recv_reduce, .order = order, .recv_from = peer, .src = partial(kept), .dst = to},
        made_)};
    in_scratch_ = true;
  }

  rank_t rank_;
  partner_places places_;
  rank_program program_;
  std::vector<step_index> made_;
  bool in_scratch_ = false;
  std::uint32_t base_ = 0;
};

rank_program all_gather_program(rank_t rank, rank_t ranks) {
  rank_program program;
  const partner_places places{ranks};
  const auto own = static_cast<std::uint32_t>(rank);
  const block_run all{0, static_cast<std::uint32_t>(ranks)};
  if (places.stands_aside(rank)) {
    const auto sent = program.add({.kind = step_kind::send, .send_to = rank - 1, .src = {space::in, 0, 1}});
    program.add({.kind = step_kind::recv, .recv_from = rank - 1, .dst = all.in(space::out)}, {sent});
    return program;
  }
  std::vector<step_index> present{
      program.add({.kind = step_kind::copy, .src = {space::in, 0, 1}, .dst = {space::out, own, 1}})};
  if (places.paired(rank))
    present.push_back(
        program.add({.kind = step_kind::recv, .recv_from = rank + 1, .dst = {space::out, own + 1, 1}}));
  const auto run_at = [&](rank_t place, rank_t length) {
    const rank_t first = place & -length;
    return block_run{static_cast<std::uint32_t>(places.rank_of(first)),
                     static_cast<std::uint32_t>(places.rank_of(first + length))};
  };
  const rank_t place = places.place_of(rank);
  for (rank_t distance = 1; distance < places.partners(); distance *= 2) {
    const rank_t peer = places.rank_of(place ^ distance);
    program.add({.kind = step_kind::send, .send_to = peer, .src = run_at(place, distance).in(space::out)},
                present);
    present.push_back(program.add({.kind = step_kind::recv,
                                   .recv_from = peer,
                                   .dst = run_at(place ^ distance, distance).in(space::out)}));
  }
  if (places.paired(rank))
    program.add({.kind = step_kind::send, .send_to = rank + 1, .src = all.in(space::out)}, present);
  return program;
}

algorithm in_runs(std::string name, definition what, algorithm::generator make) {
  return {std::move(name),          what,
          std::move(make),          placement_support::both,
          step_unit::run_of_blocks, share_lengths::each_end_knows};
}

}  // namespace

result<algorithm> recursive_halving_all_reduce(rank_t ranks) {
  if (auto refused = out_of_range("recursive halving", ranks)) return *refused;
  const auto blocks = static_cast<std::uint32_t>(partner_places{ranks}.partners());
  return in_runs("recursive halving and doubling",
                 {.what = collective::all_reduce, .ranks = ranks, .blocks = blocks},
                 [=](rank_t rank) { return all_reduce_program(rank, ranks); });
}

result<algorithm> recursive_halving_reduce_scatter(rank_t ranks) {
  if (auto refused = out_of_range("recursive halving", ranks)) return *refused;
  return in_runs("recursive halving", {.what = collective::reduce_scatter, .ranks = ranks},
                 [=](rank_t rank) { return scattering{rank, ranks}.program(); });
}

result<algorithm> recursive_doubling_all_gather(rank_t ranks) {
  if (auto refused = out_of_range("recursive doubling all_gather", ranks)) return *refused;
  return in_runs("recursive doubling", {.what = collective::all_gather, .ranks = ranks},
                 [=](rank_t rank) { return all_gather_program(rank, ranks); });
}

}  // namespace chorale::schedule
