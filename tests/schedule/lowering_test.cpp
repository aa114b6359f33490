#include <chorale/schedule/generators.hpp>
#include <chorale/schedule/lowering.hpp>

#include <boost/test/unit_test.hpp>

#include <map>
#include <tuple>
#include <vector>

namespace {

using namespace chorale::schedule;
using chorale::errc;
using chorale::rank_t;

}  // namespace

BOOST_AUTO_TEST_SUITE(lowering)

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

BOOST_AUTO_TEST_CASE(running_folds_are_laid_out_in_accumulators) {
  // Rank 1 of 4 folds what comes from 0, its own part, what comes from 2 and 3; 5 elements of 2 bytes.
  const auto owner = slice_owner_reduce_scatter(4, fold_style::streamed, partial_sums::in_accumulators);
  const block_map blocks = block_map::even(owner->what(), 5);
  const auto made = lower(*owner, 1, blocks, {.element_bytes = 2, .accumulator_bytes = 4});
  BOOST_REQUIRE(made.has_value());
  BOOST_TEST(made->element_bytes == 2U);
  BOOST_TEST(made->accumulator_bytes == 4U);
  BOOST_TEST(made->scratch_bytes == 64U);  // 5 × 4 bytes, to the end of a cache line
  BOOST_REQUIRE(made->steps.size() == 7U);
  struct expectation {
    step_kind kind;
    bool src_wide;
    bool dst_wide;
  };
  const expectation expected[] = {{step_kind::recv, false, true},
                                  {step_kind::reduce, false, true},
                                  {step_kind::recv_reduce, true, true},
                                  {step_kind::recv_reduce, true, false}};
  for (std::size_t i = 0; i < 4; ++i) {
    const plan_step& s = made->steps[3 + i];
    BOOST_TEST((s.kind == expected[i].kind));
    BOOST_TEST(s.src_wide == expected[i].src_wide);
    BOOST_TEST(s.dst_wide == expected[i].dst_wide);
    BOOST_TEST(s.length == 10U);
  }
  for (const plan_edge& e : made->edges) BOOST_TEST(e.bytes == 10U);
}

BOOST_AUTO_TEST_CASE(pieces_of_accumulators_begin_at_their_elements) {
  const auto owner = slice_owner_reduce_scatter(3, fold_style::staged, partial_sums::in_accumulators);
  const block_map blocks = block_map::even(owner->what(), 100);
  const auto made = lower(*owner, 0, blocks, {.element_bytes = 1, .accumulator_bytes = 4, .pieces = 3});
  BOOST_REQUIRE(made.has_value());
  // Two staged parts of 100 bytes and one fold of 400, each from a cache line.
  BOOST_TEST(made->scratch_bytes == 128U + 128U + 448U);
  std::vector<std::uint64_t> begins;
  for (const plan_step& s : made->steps)
    if (s.kind == step_kind::copy && s.dst_wide) begins.push_back(s.dst_offset);
  const std::vector<std::uint64_t> expected{256, 256 + 34 * 4, 256 + 67 * 4};
  BOOST_TEST(begins == expected, boost::test_tools::per_element());
  // Without accumulators the same plan keeps elements throughout.
  const auto narrow = lower(*owner, 0, blocks, {.element_bytes = 1, .pieces = 3});
  BOOST_REQUIRE(narrow.has_value());
  BOOST_TEST(narrow->scratch_bytes == 3 * 128U);
  BOOST_TEST(narrow->accumulator_bytes == 1U);
  for (const plan_step& s : narrow->steps) BOOST_TEST(!(s.src_wide || s.dst_wide));
}

BOOST_AUTO_TEST_CASE(accumulators_stand_only_on_the_left_and_never_travel) {
  const auto with = [](step_kind kind, operand_order order, block_ref src, block_ref dst) {
    return algorithm{
        "odd", {.what = collective::all_reduce, .ranks = 2}, [=](rank_t me) {
          rank_program p;
          p.add_scratch({space::in, 0, scratch_content::running_fold});
          p.add(
              {.kind = kind, .order = order, .send_to = 1 - me, .recv_from = 1 - me, .src = src, .dst = dst});
          return p;
        }};
  };
  const block_ref in{space::in, 0, 1};
  const block_ref out{space::out, 0, 1};
  const block_ref fold{space::scratch, 0, 1};
  constexpr auto left = operand_order::local_first;
  constexpr auto right = operand_order::arriving_first;
  const auto lowers = [](const algorithm& a) {
    return lower(a, 0, block_map::even(a.what(), 8), {.element_bytes = 2, .accumulator_bytes = 4})
        .has_value();
  };
  BOOST_TEST(lowers(with(step_kind::copy, left, in, fold)));
  BOOST_TEST(lowers(with(step_kind::copy, left, fold, out)));
  BOOST_TEST(lowers(with(step_kind::recv_reduce_copy_send, left, fold, out)));
  BOOST_TEST(!lowers(with(step_kind::copy, left, fold, fold)));
  BOOST_TEST(!lowers(with(step_kind::send, left, fold, out)));
  BOOST_TEST(!lowers(with(step_kind::reduce, left, fold, out)));
  BOOST_TEST(!lowers(with(step_kind::reduce, right, in, fold)));
  BOOST_TEST(!lowers(with(step_kind::recv_reduce, right, fold, fold)));
  BOOST_TEST(!lowers(with(step_kind::recv_reduce, left, in, fold)));
  BOOST_TEST(!lowers(with(step_kind::recv_copy_send, left, in, fold)));
}

BOOST_AUTO_TEST_CASE(bad_requests_are_refused_with_the_reason) {
  const auto ring = ring_all_reduce(4);
  const block_map blocks = block_map::even(ring->what(), 8);
  BOOST_TEST((lower(*ring, 4, blocks, {}).error() == errc::invalid_argument));
  BOOST_TEST((lower(*ring, 0, blocks, {.element_bytes = 0}).error() == errc::invalid_argument));
  BOOST_TEST((lower(*ring, 0, blocks, {.element_bytes = 4, .accumulator_bytes = 2}).error() ==
              errc::invalid_argument));
  const auto other = block_map::even({.what = collective::all_reduce, .ranks = 4, .blocks = 3}, 8);
  BOOST_TEST((lower(*ring, 0, other, {}).error() == errc::invalid_argument));
  BOOST_TEST((block_map::from_tables(ring->what(), {}, {}).error() == errc::invalid_argument));
  BOOST_TEST(!ring_all_reduce(0).has_value());
  BOOST_TEST(!ring_all_reduce(4, 0).has_value());
  BOOST_TEST(!ring_all_reduce(3, 1, {0, 1, 1}).has_value());
  BOOST_TEST(!recursive_doubling_all_reduce(-1).has_value());
  BOOST_TEST(!chain_all_reduce(0).has_value());
  BOOST_TEST(!slice_owner_all_reduce(0).has_value());
  BOOST_TEST((binomial_broadcast(4, 4).error() == errc::invalid_argument));
  BOOST_TEST((chain_reduce(4, -1).error() == errc::invalid_argument));

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
