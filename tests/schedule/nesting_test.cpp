#include <chorale/schedule/generators.hpp>
#include <chorale/schedule/nesting.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <vector>

namespace {

using namespace chorale::schedule;
using chorale::rank_t;

std::vector<step_index> dependencies_of(const rank_program& p, step_index i) {
  const auto d = p.dependencies(p.steps()[i]);
  return {d.begin(), d.end()};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nesting_of_programs)

BOOST_AUTO_TEST_CASE(ranks_blocks_and_scratch_are_renamed) {
  // Rank 2 of a three-rank slice owner folds its slice behind two parts; here it is rank 7, and in place.
  const auto inner = slice_owner_reduce_scatter(3, fold_style::streamed, partial_sums::in_accumulators);
  rank_program outer;
  outer.add_scratch({space::in, 0});
  const auto before =
      outer.add({.kind = step_kind::copy, .src = {space::in, 9, 1}, .dst = {space::out, 9, 1}});
  const std::vector<rank_t> ranks{5, 6, 7};
  const std::vector<block_ref> in{{space::out, 10, 1}, {space::out, 11, 1}, {space::out, 12, 1}};
  const std::vector<block_ref> out{{space::out, 12, 1}};
  add_nested(outer, inner->program(2), {.ranks = ranks, .in = in, .out = out, .after = {&before, 1}});

  const auto steps = outer.steps();
  BOOST_REQUIRE(steps.size() > 3U);
  BOOST_TEST(steps[1].send_to == 5);
  BOOST_TEST((steps[1].src == block_ref{space::out, 10, 1}));
  BOOST_TEST(steps[2].send_to == 6);
  BOOST_REQUIRE(outer.scratch().size() == 2U);
  BOOST_TEST((outer.scratch()[1].like == space::out));
  BOOST_TEST(outer.scratch()[1].block == 12U);
  BOOST_TEST((outer.scratch()[1].content == scratch_content::running_fold));
  BOOST_TEST((steps.back().dst == out[0]));
  // The first steps wait for what came before; the others do so through them.
  for (step_index i = 1; i < steps.size(); ++i) {
    const auto after = dependencies_of(outer, i);
    BOOST_REQUIRE(!after.empty());
    const bool receives_first = steps[i].kind == step_kind::recv;
    if (steps[i].kind == step_kind::send || receives_first) BOOST_TEST(after.front() == before);
  }
}

BOOST_AUTO_TEST_CASE(copies_onto_themselves_pass_on_what_they_waited_for) {
  // A single rank's all_reduce is a copy; where input and output are one, nothing is left of it.
  const auto alone = ring_all_reduce(1);
  rank_program outer;
  const auto before =
      outer.add({.kind = step_kind::copy, .src = {space::in, 0, 1}, .dst = {space::out, 0, 1}});
  const rank_t rank = 3;
  const block_ref block{space::out, 0, 1};
  const auto ends =
      add_nested(outer, alone->program(0),
                 {.ranks = {&rank, 1}, .in = {&block, 1}, .out = {&block, 1}, .after = {&before, 1}});
  BOOST_TEST(outer.steps().size() == 1U);
  BOOST_TEST(ends == std::vector<step_index>{before}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_nothing_waits_for_is_returned) {
  const auto inner = recursive_doubling_all_reduce(4);
  rank_program outer;
  const std::vector<rank_t> ranks{0, 1, 2, 3};
  const block_ref in{space::in, 0, 1};
  const block_ref out{space::out, 0, 1};
  const auto ends = add_nested(outer, inner->program(1), {.ranks = ranks, .in = {&in, 1}, .out = {&out, 1}});
  // The last sum and the sends that no later write had to wait for.
  BOOST_TEST((std::find(ends.begin(), ends.end(), outer.steps().size() - 1) != ends.end()));
  for (const step_index end : ends) {
    for (step_index i = 0; i < outer.steps().size(); ++i) {
      const auto after = dependencies_of(outer, i);
      BOOST_TEST((std::find(after.begin(), after.end(), end) == after.end()));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
