#include <chorale/schedule/checker.hpp>
#include <chorale/schedule/definition.hpp>

#include <boost/test/unit_test.hpp>

namespace {

using namespace chorale::schedule;
using chorale::rank_t;

definition of(collective what) { return {.what = what, .ranks = 4, .blocks = 3, .root = 2}; }

}  // namespace

BOOST_AUTO_TEST_SUITE(definitions)

BOOST_AUTO_TEST_CASE(each_collective_asks_for_the_right_contributions) {
  const requirement nothing{};
  BOOST_TEST((of(collective::all_reduce).required(1, 2) == requirement{0, 4, 2}));
  BOOST_TEST((of(collective::reduce).required(2, 1) == requirement{0, 4, 1}));
  BOOST_TEST((of(collective::reduce).required(1, 1) == nothing));
  BOOST_TEST((of(collective::broadcast).required(0, 1) == requirement{2, 3, 1}));
  BOOST_TEST((of(collective::all_gather).required(0, 10) == requirement{3, 4, 1}));
  BOOST_TEST((of(collective::reduce_scatter).required(1, 2) == requirement{0, 4, 5}));
  BOOST_TEST((of(collective::all_to_all).required(1, 7) == requirement{2, 3, 4}));
  BOOST_TEST((of(collective::gather).required(2, 4) == requirement{1, 2, 1}));
  BOOST_TEST((of(collective::gather).required(0, 4) == nothing));
  BOOST_TEST((of(collective::scatter).required(3, 1) == requirement{2, 3, 10}));
  BOOST_TEST((of(collective::scan).required(1, 2) == requirement{0, 2, 2}));
  BOOST_TEST((of(collective::exscan).required(2, 2) == requirement{0, 2, 2}));
  BOOST_TEST((of(collective::exscan).required(0, 2).last == 0));
}

BOOST_AUTO_TEST_CASE(in_place_views_lie_where_the_contribution_goes) {
  const definition gather = of(collective::all_gather);
  BOOST_TEST(gather.in_blocks() == 3U);
  BOOST_TEST(gather.out_blocks() == 12U);
  BOOST_TEST(gather.in_place_input(2) == 6U);
  BOOST_TEST(gather.in_place_output(2) == 0U);
  const definition scatter = of(collective::reduce_scatter);
  BOOST_TEST(scatter.in_blocks() == 12U);
  BOOST_TEST(scatter.out_blocks() == 3U);
  BOOST_TEST(scatter.in_place_output(3) == 9U);
}

BOOST_AUTO_TEST_CASE(lengths_are_named_after_the_input_they_come_from) {
  const auto is = [](const block_length& found, std::uint32_t block, rank_t rank, bool known) {
    return found.block == block && found.rank == rank && found.known == known;
  };
  BOOST_TEST(is(of(collective::all_reduce).length_of_output(1, 2), 2, chorale::no_rank, true));
  BOOST_TEST(is(of(collective::all_gather).length_of_input(1, 2), 2, 1, true));
  BOOST_TEST(is(of(collective::all_gather).length_of_output(1, 10), 1, 3, true));
  BOOST_TEST(is(of(collective::all_to_all).length_of_output(1, 7), 4, 2, true));
  BOOST_TEST(is(of(collective::reduce_scatter).length_of_output(1, 2), 5, chorale::no_rank, true));
  // Only the root is told what others gather or get scattered.
  BOOST_TEST(is(of(collective::gather).length_of_output(2, 4), 1, 1, true));
  BOOST_TEST(is(of(collective::gather).length_of_output(0, 4), 1, 1, false));
  BOOST_TEST(is(of(collective::scatter).length_of_input(0, 4), 4, chorale::no_rank, false));
  BOOST_TEST(is(of(collective::scatter).length_of_input(1, 4), 4, chorale::no_rank, true));
}

BOOST_AUTO_TEST_CASE(outputs_belong_to_those_who_asked) {
  BOOST_TEST(of(collective::gather).writes_output(2));
  BOOST_TEST(!of(collective::gather).writes_output(0));
  BOOST_TEST(!of(collective::reduce).writes_output(3));
  BOOST_TEST(!of(collective::exscan).writes_output(0));
  BOOST_TEST(of(collective::broadcast).writes_output(0));
}

BOOST_AUTO_TEST_CASE(a_rooted_collective_can_be_written_and_checked) {
  // Broadcast from 2 straight to everyone: nobody else's input may be read.
  const auto make = [](bool read_own) {
    return algorithm{"star", of(collective::broadcast),
                     [read_own](rank_t me) {
                       rank_program p;
                       const block_ref in{space::in, 0, 3};
                       const block_ref out{space::out, 0, 3};
                       if (me == 2 || read_own) p.add({.kind = step_kind::copy, .src = in, .dst = out});
                       for (rank_t peer = 0; peer < 4; ++peer) {
                         if (me == 2 && peer != 2)
                           p.add({.kind = step_kind::send, .send_to = peer, .src = in});
                       }
                       if (me != 2 && !read_own) p.add({.kind = step_kind::recv, .recv_from = 2, .dst = out});
                       return p;
                     },
                     placement_support::both, step_unit::run_of_blocks};
  };
  const auto sound = check(make(false), {.slots = 1});
  BOOST_TEST(sound.has_value());
  const auto unsound = check(make(true));
  BOOST_REQUIRE(!unsound.has_value());
}

BOOST_AUTO_TEST_SUITE_END()
