#include "edit.hpp"
#include <chorale/schedule/checker.hpp>
#include <chorale/schedule/generators.hpp>

#include <boost/test/unit_test.hpp>

#include <random>

namespace {

using namespace chorale::schedule;
using chorale::errc;
using chorale::rank_t;
using edit::loose_program;

std::string verdict(const algorithm& a, const check_options& options = {}) {
  const auto report = check(a, options);
  return report ? "passes" : report.error().detail();
}

/// The verdict is an error that holds all of `parts`.
void refuses(const algorithm& a, std::initializer_list<std::string_view> parts,
             const check_options& options = {}) {
  const std::string said = verdict(a, options);
  for (const std::string_view part : parts)
    BOOST_TEST(said.find(part) != std::string::npos, "\"" << part << "\" is missing in: " << said);
}

/// Changes one rank's program.
algorithm broken(const algorithm& base, rank_t victim, std::function<void(loose_program&)> change) {
  return edit::changed(base, [victim, change](rank_t rank, loose_program& p) {
    if (rank == victim) change(p);
  });
}

/// A two-rank all_reduce written by hand, one block: exchange into scratch, then reduce.
algorithm by_hand(std::function<rank_program(rank_t)> make, rank_t ranks = 2) {
  return {"by hand", {.what = collective::all_reduce, .ranks = ranks}, std::move(make)};
}

constexpr block_ref in0{space::in, 0, 1};
constexpr block_ref out0{space::out, 0, 1};
constexpr block_ref scratch0{space::scratch, 0, 1};

}  // namespace

BOOST_AUTO_TEST_SUITE(checker)

BOOST_AUTO_TEST_CASE(unbroken_copies_pass) {
  const auto untouched = edit::changed(*ring_all_reduce(5), [](rank_t, loose_program&) {});
  BOOST_TEST(verdict(untouched) == "passes");
  BOOST_TEST(verdict(untouched, {.form = placement::in_place}) == "passes");
}

BOOST_AUTO_TEST_CASE(a_dropped_step_is_named_by_its_lonely_counterpart) {
  const auto ring = ring_all_reduce(5);
  // It received from 1 and sent to 3: both edges are out of step, and the first is told.
  const auto dropped =
      broken(*ring, 2, [](loose_program& p) { p.drop(p.find(step_kind::recv_reduce_send)); });
  refuses(dropped, {"rank 1, step 7 (recv_copy_send", "to 2 on", "no counterpart", "edge from 1 to 2",
                    "8 sends and 7 receives"});
  const auto owner = slice_owner_all_reduce(4);
  const auto unsent = broken(*owner, 1, [](loose_program& p) { p.drop(p.find(step_kind::send)); });
  refuses(unsent, {"rank 2, step", "(recv from 1", "1 sends and 2 receives"});
}

BOOST_AUTO_TEST_CASE(a_dropped_local_step_is_seen_in_the_result) {
  const auto owner = slice_owner_all_reduce(4);
  const auto unreduced = broken(*owner, 3, [](loose_program& p) { p.drop(p.find(step_kind::reduce)); });
  for (const rank_t exact_up_to : {256, 0})
    refuses(unreduced, {"out[3]", "rank"}, {.exact_up_to = exact_up_to});
  const auto uncopied = broken(*owner, 3, [](loose_program& p) { p.drop(p.find(step_kind::copy)); });
  refuses(uncopied, {"rank 3, step", "reads out[3] before anything was put there"});
}

BOOST_AUTO_TEST_CASE(a_swapped_peer_is_named) {
  const auto doubling = recursive_doubling_all_reduce(8);
  const auto swapped = broken(*doubling, 5, [](loose_program& p) {
    std::swap(p.steps[p.find(step_kind::send)].what.send_to,
              p.steps[p.find(step_kind::send, 1)].what.send_to);
  });
  // Both edges still have one message, so the mistake shows as a wrong combination or a circle.
  const std::string said = verdict(swapped);
  BOOST_TEST(said.find("rank ") != std::string::npos, said);
  BOOST_TEST(said != "passes");
  const auto elsewhere =
      broken(*doubling, 5, [](loose_program& p) { p.steps[p.find(step_kind::send)].what.send_to = 2; });
  refuses(elsewhere, {"(send to 2 on channel 0)", "rank 5, step 0", "no counterpart"});
  const auto outside = broken(*doubling, 5, [](loose_program& p) { p.steps[0].what.send_to = 8; });
  refuses(outside, {"rank 5, step 0", "no such peer"});
  const auto itself = broken(*doubling, 5, [](loose_program& p) { p.steps[0].what.send_to = 5; });
  refuses(itself, {"rank 5, step 0", "no such peer"});
}

BOOST_AUTO_TEST_CASE(a_contribution_taken_twice_is_named) {
  const auto owner = slice_owner_all_reduce(4);
  const auto twice = broken(*owner, 0, [](loose_program& p) {
    const auto first = p.find(step_kind::reduce);
    p.steps[p.find(step_kind::reduce, 1)].what.src = p.steps[first].what.src;
  });
  refuses(twice, {"rank 0, step", "(reduce)", "contribution of rank 1 to block 0 a second time"});
  refuses(twice, {"out[0]", "contributions are not those of ranks 0 to 3"}, {.exact_up_to = 0});
}

BOOST_AUTO_TEST_CASE(a_missing_dependency_is_named_with_both_steps) {
  const auto owner = slice_owner_all_reduce(4);
  const auto early =
      broken(*owner, 2, [](loose_program& p) { p.steps[p.find(step_kind::reduce)].dependencies.clear(); });
  refuses(early, {"rank 2, step", "(reduce)", "scratch[", "nothing orders them"});
  // In place only: the result may land before the peer's part has left.
  const auto overrun =
      broken(*owner, 2, [](loose_program& p) { p.steps[p.find(step_kind::recv, 3)].dependencies.clear(); });
  BOOST_TEST(verdict(overrun) == "passes");
  refuses(overrun, {"rank 2, step", "(recv from", "(send to", "nothing orders them"},
          {.form = placement::in_place});
}

BOOST_AUTO_TEST_CASE(waiting_in_a_circle_is_told_around_the_circle) {
  // Both receive before they send.
  const auto circle = by_hand([](rank_t me) {
    rank_program p;
    const auto got = p.add({.kind = step_kind::recv_reduce, .recv_from = 1 - me, .src = in0, .dst = out0});
    p.add({.kind = step_kind::send, .send_to = 1 - me, .src = in0}, {got});
    return p;
  });
  refuses(circle, {"rank 0, step 0", "never runs", "rank 1, step 1", "its message", "its dependency"});
}

BOOST_AUTO_TEST_CASE(too_few_slots_are_a_circle_too) {
  // Fused steps need a message and a slot at once: a ring with one slot is full after the first sends.
  refuses(*ring_all_reduce(4), {"never runs, with 1 message", "a free slot"}, {.slots = 1});
  BOOST_TEST(verdict(*ring_all_reduce(4), {.slots = 2}) == "passes");
  BOOST_TEST(verdict(*slice_owner_all_reduce(4), {.slots = 1}) == "passes");
}

BOOST_AUTO_TEST_CASE(blocks_and_dependencies_must_exist) {
  const auto ring = ring_all_reduce(4);
  const auto far = broken(*ring, 1, [](loose_program& p) { p.steps[0].what.src.block = 4; });
  refuses(far, {"rank 1, step 0", "in[4]", "4 blocks"});
  const auto wide = broken(*ring, 1, [](loose_program& p) { p.steps[0].what.src.count = ~0U; });
  refuses(wide, {"rank 1, step 0", "4 blocks"});
  const auto two = broken(*ring, 1, [](loose_program& p) { p.steps[0].what.src.count = 2; });
  refuses(two, {"rank 1, step 0", "in[", "single blocks"});
  const auto none = broken(*ring, 1, [](loose_program& p) { p.steps[0].what.src.count = 0; });
  refuses(none, {"rank 1, step 0"});
  const auto scratch = broken(*ring, 1, [](loose_program& p) { p.steps[0].what.src = scratch0; });
  refuses(scratch, {"rank 1, step 0", "scratch[0]", "0 blocks"});
  const auto forward = broken(*ring, 1, [](loose_program& p) { p.steps[0].dependencies = {3}; });
  refuses(forward, {"rank 1, step 0", "step 3", "point backwards"});
  const auto input = broken(*ring, 1, [](loose_program& p) { p.steps.back().what.dst.where = space::in; });
  refuses(input, {"rank 1, step 6", "the caller's input"});
}

BOOST_AUTO_TEST_CASE(both_ends_must_agree_on_sizes) {
  const auto made = algorithm{"sizes",
                              {.what = collective::all_reduce, .ranks = 2, .blocks = 2},
                              [](rank_t me) {
                                rank_program p;
                                const std::uint32_t count = me == 0 ? 2 : 1;
                                p.add({.kind = step_kind::send, .send_to = 1 - me, .src = {space::in, 0, 2}});
                                p.add({.kind = step_kind::recv_reduce,
                                       .recv_from = 1 - me,
                                       .src = {space::in, 0, count},
                                       .dst = {space::out, 0, count}});
                                return p;
                              },
                              placement_support::both,
                              step_unit::run_of_blocks};
  refuses(made, {"rank 1, step 1", "expects 1 blocks", "rank 0, step 0", "sends 2"});
}

BOOST_AUTO_TEST_CASE(blocks_may_not_be_mixed_or_misplaced) {
  const auto ring = ring_all_reduce(4);
  const auto mixed = broken(*ring, 1, [](loose_program& p) {
    auto& s = p.steps[p.find(step_kind::recv_reduce_send)].what;
    s.src.block = (s.src.block + 1) % 4;
  });
  refuses(mixed, {"rank 1, step 1", "combines a value of input block"});
  const auto misplaced = broken(*ring, 1, [](loose_program& p) {
    auto& s = p.steps.back().what;
    s.dst.block = (s.dst.block + 1) % 4;
    p.steps.back().dependencies = {0, 1, 2, 3, 4, 5};
  });
  refuses(misplaced, {"rank 1, step 6", "sized like another block"});
}

BOOST_AUTO_TEST_CASE(claims_about_lengths_are_checked) {
  // Bruck's all_to_all lands shares of all ranks in scratch shaped like one share: wrong for unequal ones.
  const auto claiming = [](const algorithm& base, share_lengths lengths) {
    return algorithm{
        base.name(), base.what(), [base](rank_t r) { return base.program(r); }, placement_support::both,
        base.unit(), lengths};
  };
  const auto bruck = bruck_all_to_all(5);
  BOOST_TEST(verdict(*bruck) == "passes");
  refuses(claiming(*bruck, share_lengths::each_end_knows), {"(copy)", "sized like another block"});
  // A tree's scratch for others' shares needs lengths that only the root is told.
  const auto tree = binomial_gather(5, 1);
  BOOST_TEST(verdict(*tree) == "passes");
  refuses(claiming(*tree, share_lengths::each_end_knows), {"rank 3, step", "sized like another block"});
}

BOOST_AUTO_TEST_CASE(outputs_that_a_rank_does_not_have_stay_alone) {
  const auto tree = binomial_reduce(4, 0);
  const auto writing = broken(*tree, 2, [](loose_program& p) {
    step& s = p.steps[p.find(step_kind::recv_reduce_send)].what;
    s.kind = step_kind::recv_reduce_copy_send;
    s.dst = out0;
  });
  refuses(writing, {"rank 2, step 0", "writes out[0]", "leaves this rank no output"});
}

BOOST_AUTO_TEST_CASE(what_nobody_writes_is_missed) {
  const auto idle = by_hand([](rank_t) { return rank_program{}; });
  refuses(idle, {"rank 0", "no step writes out[0]"});
  const auto unread = by_hand([](rank_t me) {
    rank_program p;
    p.add_scratch({space::out, 0});
    p.add({.kind = step_kind::send, .send_to = 1 - me, .src = scratch0});
    p.add({.kind = step_kind::recv, .recv_from = 1 - me, .dst = out0});
    return p;
  });
  refuses(unread, {"rank 0, step 0", "reads scratch[0] before anything"});
}

BOOST_AUTO_TEST_CASE(ranks_must_evaluate_one_expression) {
  // Each puts its own operand on the left: the same set, but not the same bits for every type and value.
  const auto selfish = by_hand([](rank_t me) {
    rank_program p;
    p.add({.kind = step_kind::send, .send_to = 1 - me, .src = in0});
    p.add({.kind = step_kind::recv_reduce, .recv_from = 1 - me, .src = in0, .dst = out0});
    return p;
  });
  refuses(selfish, {"rank 1, step 1", "another expression than on rank 0"});
  const auto lenient = check(selfish, {.required = expression::any});
  BOOST_REQUIRE(lenient.has_value());
  BOOST_TEST((lenient->found == expression::any));

  refuses(*recursive_doubling_all_reduce(4), {"not the left fold"}, {.required = expression::left_fold});
  const auto report = check(*slice_owner_all_reduce(4));
  BOOST_REQUIRE(report.has_value());
  BOOST_TEST((report->found == expression::left_fold));
  BOOST_TEST(report->most_scratch_blocks == 3U);
}

BOOST_AUTO_TEST_CASE(order_through_messages_is_weaker_than_dependencies) {
  // Rank 0 sends scratch, and overwrites it when rank 1's answer has come: sound only if the answer proves
  // that the first message has left.
  const auto ping_pong = by_hand([](rank_t me) {
    rank_program p;
    p.add_scratch({space::out, 0});
    if (me == 0) {
      const auto copied = p.add({.kind = step_kind::copy, .src = in0, .dst = scratch0});
      p.add({.kind = step_kind::send, .send_to = 1, .src = scratch0}, {copied});
      const auto got = p.add({.kind = step_kind::recv, .recv_from = 1, .dst = scratch0}, {copied});
      p.add({.kind = step_kind::copy, .src = scratch0, .dst = out0}, {got});
    } else {
      const auto sum = p.add({.kind = step_kind::recv_reduce,
                              .order = operand_order::arriving_first,
                              .recv_from = 0,
                              .src = in0,
                              .dst = out0});
      p.add({.kind = step_kind::send, .send_to = 0, .src = out0}, {sum});
    }
    return p;
  });
  refuses(ping_pong, {"rank 0, step 2", "rank 0, step 1", "nothing orders them"});
  BOOST_TEST(verdict(ping_pong, {.ordering = memory_ordering::through_messages}) == "passes");
}

BOOST_AUTO_TEST_CASE(memory_order_is_found_through_long_chains) {
  // More steps than one stripe of ancestors holds; the first and the last share a block.
  const auto chain = [](bool cut) {
    return by_hand(
        [cut](rank_t) {
          rank_program p;
          p.add_scratch({space::out, 0});
          step_index last = p.add({.kind = step_kind::copy, .src = in0, .dst = out0});
          for (std::uint32_t i = 0; i < 10000; ++i) {
            const auto s = p.add_scratch({space::out, 0});
            const step copy{.kind = step_kind::copy, .src = in0, .dst = {space::scratch, s, 1}};
            last = cut && i == 5000 ? p.add(copy) : p.add(copy, {last});
          }
          p.add({.kind = step_kind::copy, .src = in0, .dst = out0}, {last});
          return p;
        },
        1);
  };
  BOOST_TEST(verdict(chain(false)) == "passes");
  refuses(chain(true), {"rank 0, step 10001", "rank 0, step 0", "out[0]"});
}

BOOST_AUTO_TEST_CASE(random_damage_never_passes) {
  // The streamed owner keeps its own part in two places, so that taking it from the other changes nothing.
  const std::uint64_t seed = std::random_device{}();
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 600; ++round) {
    const auto n = static_cast<rank_t>(3 + random() % 9);
    const std::uint64_t kind = random() % 4;
    const chorale::result<algorithm> made[] = {
        ring_all_reduce(n),           recursive_doubling_all_reduce(n),
        slice_owner_all_reduce(n),    slice_owner_all_reduce(n, fold_style::streamed),
        double_tree_all_reduce(n),    recursive_halving_all_reduce(n),
        recursive_doubling_exscan(n), bruck_all_to_all(n),
        binomial_scatter(n, n / 2)};
    const algorithm& base = *made[random() % (kind == 3 ? 3 : std::size(made))];
    const auto victim = static_cast<rank_t>(random() % static_cast<std::uint64_t>(n));
    const std::uint64_t pick = random();
    if (base.program(victim).steps().empty()) continue;
    const auto damaged = broken(base, victim, [&](loose_program& p) {
      const auto at = static_cast<step_index>(pick % p.steps.size());
      step& s = p.steps[at].what;
      if (kind == 1 && sends(s.kind)) {
        s.send_to = (s.send_to + 1) % n;
      } else if (kind == 2 && receives(s.kind)) {
        s.recv_from = (s.recv_from + 1) % n;
      } else if (kind == 3 && reads_src(s.kind)) {
        s.src.where = s.src.where == space::in ? space::out : space::in;
      } else {
        p.drop(at);
      }
    });
    const std::string said = verdict(damaged);
    BOOST_TEST(said != "passes", "seed " << seed << ", round " << round << ", " << base.name() << ", rank "
                                         << victim << ", kind " << kind);
    BOOST_TEST(said.find("rank ") != std::string::npos, said);
  }
}

BOOST_AUTO_TEST_CASE(bad_questions_are_refused) {
  BOOST_TEST((check(*ring_all_reduce(2), {.slots = 0}).error() == errc::invalid_argument));
  const algorithm nonsense{
      "nonsense", {.what = collective::reduce, .ranks = 2, .root = 2}, [](rank_t) { return rank_program{}; }};
  refuses(nonsense, {"root 2", "no meaning"});
  const algorithm one_form{"one form",
                           {.what = collective::all_reduce, .ranks = 1},
                           [](rank_t) { return rank_program{}; },
                           placement_support::in_place_only};
  refuses(one_form, {"does not claim to be sound out of place"});
  BOOST_TEST(verdict(one_form, {.form = placement::in_place}) == "passes");
}

BOOST_AUTO_TEST_SUITE_END()
