#include "reference_executor.hpp"
#include <chorale/schedule/generators.hpp>
#include <chorale/schedule/lowering.hpp>

#include <boost/test/unit_test.hpp>

#include <numeric>
#include <random>

namespace {

using namespace chorale::schedule;
using chorale::errc;
using chorale::rank_t;

struct trial {
  rank_t ranks;
  std::uint64_t count;
  std::uint32_t pieces;
  placement form;
  std::uint64_t seed;
};

std::string describe(const algorithm& a, const trial& t) {
  return a.name() + ", " + std::string{name_of(a.what().what)} + ", " + std::to_string(t.ranks) +
         " ranks, count " + std::to_string(t.count) + ", pieces " + std::to_string(t.pieces) +
         (t.form == placement::in_place ? ", in place" : "") + ", seed " + std::to_string(t.seed);
}

/// Inputs are arbitrary floats, so that every order of additions gives other bits.
std::vector<std::vector<float>> make_inputs(const algorithm& a, const trial& t) {
  std::mt19937_64 random{t.seed};
  std::uniform_real_distribution<float> values{-1000.0F, 1000.0F};
  const std::uint64_t units = a.what().in_blocks() / a.what().blocks;
  std::vector<std::vector<float>> inputs(static_cast<std::size_t>(t.ranks));
  for (auto& input : inputs) {
    input.resize(units * t.count);
    for (auto& x : input) x = values(random);
  }
  return inputs;
}

/// Runs the schedule over real memory; outputs per rank, or what went wrong.
std::string execute(const algorithm& a, const trial& t, const std::vector<std::vector<float>>& inputs,
                    std::vector<std::vector<float>>& outputs) {
  const definition& what = a.what();
  const block_map blocks = block_map::even(what, t.count);
  const std::uint64_t in_size = what.in_blocks() / what.blocks * t.count;
  const std::uint64_t out_size = what.out_blocks() / what.blocks * t.count;
  std::vector<std::vector<float>> buffers;
  std::vector<std::vector<float>> copies = inputs;
  buffers.reserve(inputs.size());
  std::vector<reference::rank_memory<float>> memory;
  std::vector<plan> plans;
  for (rank_t r = 0; r < t.ranks; ++r) {
    auto made = lower(a, r, blocks, {.element_bytes = sizeof(float), .form = t.form, .pieces = t.pieces});
    if (!made) return made.error().message();
    plans.push_back(std::move(*made));
    auto& input = copies[static_cast<std::size_t>(r)];
    buffers.emplace_back(std::max(in_size, out_size), 0.0F);
    float* whole = buffers.back().data();
    if (t.form == placement::in_place) {
      float* in = whole + what.in_place_input(r) / what.blocks * t.count;
      std::copy(input.begin(), input.end(), in);
      memory.push_back({in, whole + what.in_place_output(r) / what.blocks * t.count, {}});
    } else {
      memory.push_back({input.data(), whole, {}});
    }
  }
  const auto outs = memory;
  reference::executor run{std::move(plans), std::move(memory), std::plus<float>{}, t.seed};
  if (auto wrong = run.run(); !wrong.empty()) return wrong;
  outputs.clear();
  for (const auto& m : outs) outputs.emplace_back(m.out, m.out + out_size);
  if (t.form == placement::out_of_place && copies != inputs) return "an input was overwritten";
  return {};
}

/// Every output against the definition: copies exactly, sums to rounding, equal blocks bitwise equal
/// everywhere; `left_fold` sums exactly in rank order.
std::string judge(const algorithm& a, const trial& t, const std::vector<std::vector<float>>& inputs,
                  const std::vector<std::vector<float>>& outputs, bool left_fold) {
  const definition& what = a.what();
  const block_map blocks = block_map::even(what, t.count);
  for (rank_t r = 0; r < t.ranks; ++r) {
    for (std::uint32_t b = 0; b < what.out_blocks(); ++b) {
      const requirement need = what.required(r, b);
      const extent to = blocks.out()[b];
      const extent from = blocks.in()[need.block];
      for (std::uint64_t i = 0; i < to.length; ++i) {
        float fold = inputs[static_cast<std::size_t>(need.first)][from.offset + i];
        double exact = fold;
        double magnitude = std::abs(exact);
        for (rank_t q = need.first + 1; q < need.last; ++q) {
          const float x = inputs[static_cast<std::size_t>(q)][from.offset + i];
          fold += x;
          exact += x;
          magnitude += std::abs(double{x});
        }
        const float got = outputs[static_cast<std::size_t>(r)][to.offset + i];
        const bool single = need.last == need.first + 1;
        const bool good =
            left_fold || single ? got == fold : std::abs(got - exact) <= 1e-7 * t.ranks * magnitude + 1e-30;
        const bool same = what.what != collective::all_reduce || got == outputs[0][to.offset + i];
        if (!good || !same)
          return "rank " + std::to_string(r) + ", block " + std::to_string(b) + ", element " +
                 std::to_string(i) + ": " + std::to_string(got) + " instead of " + std::to_string(exact);
      }
    }
  }
  return {};
}

void try_schedule(const chorale::result<algorithm>& made, const trial& t, bool left_fold) {
  BOOST_REQUIRE(made.has_value());
  const auto inputs = make_inputs(*made, t);
  std::vector<std::vector<float>> outputs;
  std::string wrong = execute(*made, t, inputs, outputs);
  if (wrong.empty()) wrong = judge(*made, t, inputs, outputs, left_fold);
  BOOST_TEST(wrong.empty(), describe(*made, t) << ": " << wrong);
}

#ifdef CHORALE_SANITIZED
constexpr int rounds = 6;
#else
constexpr int rounds = 60;
#endif

}  // namespace

BOOST_AUTO_TEST_SUITE(lowering)

BOOST_AUTO_TEST_CASE(every_generator_computes_what_the_definition_says) {
  std::mt19937_64 random{std::random_device{}()};
  const std::uint64_t seed = random();
  BOOST_TEST_MESSAGE("seed " << seed);
  random.seed(seed);
  const auto up_to = [&](std::uint64_t most) { return random() % (most + 1); };
  for (int round = 0; round < rounds; ++round) {
    const auto n = static_cast<rank_t>(1 + up_to(round < rounds * 2 / 3 ? 10 : 20));
    const auto channels = static_cast<std::uint32_t>(1 + up_to(3));
    const std::uint64_t sizes[] = {0, 1, static_cast<std::uint64_t>(n) - 1, static_cast<std::uint64_t>(n),
                                   up_to(300)};
    ring_order order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (const placement form : {placement::out_of_place, placement::in_place}) {
      const trial t{n, sizes[up_to(4)], static_cast<std::uint32_t>(1 + up_to(3)), form, seed + up_to(1000)};
      try_schedule(ring_all_reduce(n, channels), t, false);
      try_schedule(ring_all_reduce(n, channels, order), t, false);
      try_schedule(ring_reduce_scatter(n, channels, order), t, false);
      try_schedule(ring_all_gather(n, channels, order), t, false);
      try_schedule(recursive_doubling_all_reduce(n), t, false);
      try_schedule(direct_all_gather(n), t, false);
      try_schedule(chain_all_reduce(n), t, true);
      for (const fold_style fold : {fold_style::staged, fold_style::streamed}) {
        try_schedule(slice_owner_all_reduce(n, fold), t, true);
        try_schedule(slice_owner_reduce_scatter(n, fold), t, true);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(nothing_is_left_of_an_empty_call_but_its_edges) {
  const auto ring = ring_all_reduce(4, 2);
  const auto made = lower(*ring, 1, block_map::even(ring->what(), 0), {.element_bytes = 4});
  BOOST_REQUIRE(made.has_value());
  BOOST_TEST(made->steps.empty());
  BOOST_TEST(made->edges.size() == 4U);
  for (const plan_edge& e : made->edges) BOOST_TEST(e.messages == 0U);
}

BOOST_AUTO_TEST_CASE(both_ends_of_an_edge_count_the_same_messages) {
  for (const std::uint64_t count : {1U, 5U, 100U}) {
    const auto ring = ring_all_reduce(6, 2);
    std::map<std::tuple<rank_t, rank_t, channel_t>, std::vector<std::uint64_t>> seen;
    for (rank_t r = 0; r < 6; ++r) {
      const auto made =
          lower(*ring, r, block_map::even(ring->what(), count), {.element_bytes = 8, .pieces = 3});
      BOOST_REQUIRE(made.has_value());
      for (const plan_edge& e : made->edges) {
        const bool sending = e.way == direction::sending;
        auto& both = seen[{sending ? r : e.peer, sending ? e.peer : r, e.channel}];
        both.push_back(e.messages);
        both.push_back(e.bytes);
      }
    }
    for (const auto& [key, both] : seen) {
      BOOST_REQUIRE(both.size() == 4U);
      BOOST_TEST(both[0] == both[2]);
      BOOST_TEST(both[1] == both[3]);
    }
  }
}

BOOST_AUTO_TEST_CASE(offsets_pass_four_gigabytes) {
  const auto owner = slice_owner_all_reduce(3);
  const std::uint64_t count = std::uint64_t{5} << 30;
  const auto made = lower(*owner, 2, block_map::even(owner->what(), count), {.element_bytes = 4});
  BOOST_REQUIRE(made.has_value());
  std::uint64_t reached = 0;
  for (const plan_step& s : made->steps)
    if (writes_dst(s.kind) && s.dst_space == space::out) reached = std::max(reached, s.dst_offset + s.length);
  BOOST_TEST(reached == count * 4);
  BOOST_TEST(made->scratch_bytes >= count / 3 * 2 * 4);
}

BOOST_AUTO_TEST_CASE(pieces_keep_messages_short) {
  const auto ring = ring_all_reduce(4);
  const block_map blocks = block_map::even(ring->what(), 4001);
  const std::uint32_t pieces = pieces_within(blocks, 4, 1000);
  BOOST_TEST(pieces == 5U);
  const auto made = lower(*ring, 0, blocks, {.element_bytes = 4, .pieces = pieces});
  BOOST_REQUIRE(made.has_value());
  for (const plan_step& s : made->steps) BOOST_TEST(s.length <= 1000U);
  BOOST_TEST(pieces_within(block_map::even(ring->what(), 0), 4, 1000) == 1U);
}

BOOST_AUTO_TEST_CASE(blocks_are_balanced_and_begin_on_the_grain) {
  const definition what{.what = collective::all_reduce, .ranks = 4, .blocks = 4};
  const block_map even = block_map::even(what, 10);
  const std::vector<extent> expected{{0, 3}, {3, 3}, {6, 2}, {8, 2}};
  BOOST_TEST(std::equal(even.out().begin(), even.out().end(), expected.begin(), expected.end()));
  const block_map grained = block_map::even(what, 10, 4);
  const std::vector<extent> on_grain{{0, 4}, {4, 4}, {8, 2}, {10, 0}};
  BOOST_TEST(std::equal(grained.in().begin(), grained.in().end(), on_grain.begin(), on_grain.end()));
}

BOOST_AUTO_TEST_CASE(explicit_tables_may_have_holes_between_single_blocks) {
  const auto gather = direct_all_gather(2);
  const auto blocks = block_map::from_tables(gather->what(), {{0, 5}}, {{100, 5}, {3, 7}});
  BOOST_REQUIRE(blocks.has_value());
  const auto made = lower(*gather, 0, *blocks, {.element_bytes = 2});
  BOOST_REQUIRE(made.has_value());
  BOOST_REQUIRE(made->steps.size() == 3U);
  BOOST_TEST(made->steps[2].dst_offset == 6U);
  BOOST_TEST(made->steps[2].length == 14U);
}

BOOST_AUTO_TEST_CASE(bad_requests_are_refused_with_the_reason) {
  const auto ring = ring_all_reduce(4);
  const block_map blocks = block_map::even(ring->what(), 8);
  BOOST_TEST((lower(*ring, 4, blocks, {}).error() == errc::invalid_argument));
  BOOST_TEST((lower(*ring, 0, blocks, {.element_bytes = 0}).error() == errc::invalid_argument));
  const auto other = block_map::even({.what = collective::all_reduce, .ranks = 4, .blocks = 3}, 8);
  BOOST_TEST((lower(*ring, 0, other, {}).error() == errc::invalid_argument));
  BOOST_TEST((block_map::from_tables(ring->what(), {}, {}).error() == errc::invalid_argument));
  BOOST_TEST(!ring_all_reduce(0).has_value());
  BOOST_TEST(!ring_all_reduce(4, 0).has_value());
  BOOST_TEST(!ring_all_reduce(3, 1, {0, 1, 1}).has_value());
  BOOST_TEST(!recursive_doubling_all_reduce(-1).has_value());
  BOOST_TEST(!chain_all_reduce(0).has_value());
  BOOST_TEST(!slice_owner_all_reduce(0).has_value());

  const algorithm broken{
      "broken", {.what = collective::all_reduce, .ranks = 2, .blocks = 2}, [](rank_t) {
        rank_program p;
        p.add({.kind = step_kind::copy, .src = {space::in, 1, 2}, .dst = {space::out, 0, 2}});
        return p;
      }};
  const auto refused = lower(broken, 1, block_map::even(broken.what(), 8), {});
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST(refused.error().detail().find("rank 1, step 0") != std::string::npos);
  BOOST_TEST(refused.error().detail().find("in[1..2]") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
