// Thousands of seeds: right answer or right error on every rank, the same trace for the same seed, and
// planted faults of the library found.
//
// CHORALE_SIM_SEEDS=10000 plays more of them, CHORALE_SIM_SEED=17 only one, with its trace.
#include "simulation.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <iostream>
#include <string>

using namespace chorale;
using namespace chorale::testing;

namespace {

#ifdef CHORALE_SANITIZED
constexpr std::uint64_t usual_seeds = 60;
#else
constexpr std::uint64_t usual_seeds = 1000;
#endif
constexpr std::uint64_t seeds_of_a_planted_fault = 1000;

std::uint64_t number_in(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string report(const scenario& s, const judgement& found, const char* test) {
  std::string text = describe(s);
  for (const std::string& complaint : found.complaints) text += "  " + complaint + "\n";
  return text + "again: CHORALE_SIM_SEED=" + std::to_string(s.seed) +
         " build/tests/collective/collective_tests --run_test=simulation/" + test;
}

/// Plays seeds until some have gone wrong, or the one that the environment names.
void play_all(const char* test, std::uint64_t seeds, rank_t fewest, rank_t most) {
  plan_store plans;
  const std::uint64_t only = number_in("CHORALE_SIM_SEED", 0);
  std::size_t successes = 0;
  std::size_t failures = 0;
  int wrong = 0;
  for (std::uint64_t seed = only ? only : 1; seed <= (only ? only : seeds) && wrong < 3; ++seed) {
    const auto choices = static_cast<std::uint64_t>(most - fewest + 1);
    const scenario s = draw_scenario(seed, fewest + static_cast<rank_t>(seed % choices));
    const judgement found = play(s, plans, planted::nothing, only != 0);
    successes += found.successes;
    failures += found.failures;
    if (found.complaints.empty()) continue;
    ++wrong;
    BOOST_ERROR(report(s, found, test));
  }
  BOOST_TEST_MESSAGE(test << ": " << successes << " operations succeeded, " << failures
                          << " failed as they should");
  // Both ends happen, or the scenarios say nothing.
  if (!only) BOOST_TEST((successes > seeds && failures > seeds));
}

/// The first seed at which a planted fault shows; the same seeds pass without it.
std::uint64_t first_seed_that_finds(planted bug, rank_t ranks) {
  plan_store plans;
  for (std::uint64_t seed = 1; seed <= seeds_of_a_planted_fault; ++seed) {
    const scenario s = draw_scenario(seed, ranks);
    if (play(s, plans, bug).complaints.empty()) continue;
    const judgement without = play(s, plans);
    BOOST_TEST(without.complaints.empty(), report(s, without, "ranks_64"));
    return seed;
  }
  return 0;
}

void check_found(const char* name, planted bug) {
  // Among fewer than eight ranks every guard is every other's neighbour: a forward would not be missed.
  for (const rank_t ranks : {12, 64}) {
    const std::uint64_t seed = first_seed_that_finds(bug, ranks);
    BOOST_TEST(seed != 0, name << " is not found among " << ranks << " ranks");
    BOOST_TEST_MESSAGE(name << " among " << ranks << " ranks: found at seed " << seed);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simulation)

BOOST_AUTO_TEST_CASE(few_ranks) { play_all("few_ranks", number_in("CHORALE_SIM_SEEDS", usual_seeds), 2, 12); }

BOOST_AUTO_TEST_CASE(ranks_64) { play_all("ranks_64", number_in("CHORALE_SIM_SEEDS", usual_seeds), 64, 64); }

// Each showed a fault of the library that the usual seeds do not.
BOOST_AUTO_TEST_CASE(seeds_that_went_wrong_once) {
  plan_store plans;
  for (const std::uint64_t seed : {3695U /* two links break within a moment, one for a good reason */}) {
    const scenario s = draw_scenario(seed, 2 + static_cast<rank_t>(seed % 11));
    const judgement found = play(s, plans);
    BOOST_TEST(found.complaints.empty(), report(s, found, "few_ranks"));
  }
}

BOOST_AUTO_TEST_CASE(the_same_seed_gives_the_same_trace) {
  plan_store plans;
  std::uint64_t previous = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed)
    for (const rank_t ranks : {4, 64}) {
      const scenario s = draw_scenario(seed, ranks);
      const judgement first = play(s, plans);
      const judgement again = play(s, plans);
      BOOST_TEST(first.digest == again.digest, "seed " << seed << " of " << ranks << " ranks");
      BOOST_TEST(first.digest != previous);
      previous = first.digest;
    }
}

BOOST_AUTO_TEST_CASE(a_skipped_signature_check_is_found) {
  check_found("a skipped signature check", planted::skipped_signature_check);
}

BOOST_AUTO_TEST_CASE(a_dropped_forward_is_found) {
  check_found("a dropped forward", planted::dropped_forward);
}

BOOST_AUTO_TEST_CASE(a_lost_lane_revoke_is_found) {
  check_found("a lost lane revoke", planted::lost_lane_revoke);
}

BOOST_AUTO_TEST_CASE(a_slot_reused_early_is_found) {
  check_found("a slot reused early", planted::slot_reused_early);
}

BOOST_AUTO_TEST_SUITE_END()
