// Settings as text and as bits, and what is chosen for whom.
#include <chorale/api/description.hpp>
#include <chorale/collective/selection.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <string>

using namespace chorale;

namespace {

using kinds = collective_kind;

std::string refusal_of(std::string_view list) {
  selection_settings s;
  auto done = s.force(list);
  return done ? "" : done.error().message();
}

call reduction_of(kinds kind, dtype type, std::uint64_t count, reduction op = reduction::sum) {
  call c;
  c.kind = kind;
  c.type = type;
  c.op = op;
  c.count = count;
  return c;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(selection)

BOOST_AUTO_TEST_CASE(a_bare_name_counts_where_it_exists_and_a_named_one_before_it) {
  selection_settings s;
  BOOST_TEST(!!s.force("all_reduce=chain, ring ,scatter_v=binomial"));
  BOOST_TEST((s.forced_for(kinds::all_reduce) == algorithm_kind::chain));
  BOOST_TEST((s.forced_for(kinds::all_gather) == algorithm_kind::ring));
  BOOST_TEST((s.forced_for(kinds::all_gather_v) == algorithm_kind::ring));
  BOOST_TEST((s.forced_for(kinds::broadcast) == algorithm_kind::automatic));
  BOOST_TEST((s.forced_for(kinds::scatter_v) == algorithm_kind::binomial));
  BOOST_TEST((s.forced_for(kinds::scatter) == algorithm_kind::automatic));
}

BOOST_AUTO_TEST_CASE(what_does_not_exist_is_refused_and_says_what_does) {
  const auto has = [](const std::string& text, const char* word) {
    return text.find(word) != std::string::npos;
  };
  BOOST_TEST(has(refusal_of("rings"), "\"rings\" is unknown"));
  BOOST_TEST(
      has(refusal_of("broadcast=ring"), "broadcast has no algorithm ring; it has tiny, chain, binomial"));
  BOOST_TEST(has(refusal_of("all_to_all_v=bruck"), "all_to_all_v has no algorithm bruck; it has direct"));
  BOOST_TEST(has(refusal_of("all_reduces=ring"), "\"all_reduces\" is no collective"));
  BOOST_TEST(refusal_of("all_to_all=bruck").empty());
}

BOOST_AUTO_TEST_CASE(settings_travel_in_64_bits) {
  for (std::size_t i = 0; i < algorithm_kinds; ++i) {
    selection_settings s;
    s.force(static_cast<algorithm_kind>(i));
    s.mode = i % 2 == 0 ? reproducibility::deterministic : reproducibility::same_on_all_ranks;
    const selection_settings there = selection_settings::decoded(s.encoded());
    BOOST_TEST((there.forced == s.forced));
    BOOST_TEST((there.mode == s.mode));
  }
  // Whatever the bits are, no collective gets an algorithm that it does not have.
  const selection_settings odd = selection_settings::decoded(~std::uint64_t{0});
  for (std::size_t k = 0; k < collective_kinds; ++k) BOOST_TEST(serves(odd.forced[k], static_cast<kinds>(k)));
}

BOOST_AUTO_TEST_CASE(deterministic_results_are_left_folds) {
  selection_settings s;
  s.mode = reproducibility::deterministic;
  for (const rank_t ranks : {2, 5, 40})
    for (const std::uint64_t count : {1, 1000, 1000000}) {
      for (const kinds kind : {kinds::all_reduce, kinds::reduce, kinds::reduce_scatter}) {
        const algorithm_kind chosen = choose(s, reduction_of(kind, dtype::bf16, count), ranks);
        BOOST_TEST((chosen == algorithm_kind::slice_owner || chosen == algorithm_kind::direct));
      }
      for (const kinds kind : {kinds::scan, kinds::exscan}) {
        const algorithm_kind plain = choose(s, reduction_of(kind, dtype::f32, count), ranks);
        BOOST_TEST((plain == algorithm_kind::chain || plain == algorithm_kind::direct));
        // A chain would round at every rank.
        BOOST_TEST((choose(s, reduction_of(kind, dtype::f16, count), ranks) == algorithm_kind::direct));
      }
    }
  s.force(algorithm_kind::chain);
  BOOST_TEST(!!s.check());
  // A chain would round at every rank.
  BOOST_TEST(
      (choose(s, reduction_of(kinds::all_reduce, dtype::f16, 1000), 4) == algorithm_kind::slice_owner));
  BOOST_TEST((choose(s, reduction_of(kinds::all_reduce, dtype::f32, 1000), 4) == algorithm_kind::chain));
  s.force(algorithm_kind::ring);
  auto refused = s.check();
  BOOST_TEST(!refused);
  if (!refused) BOOST_TEST(refused.error().message().find("ring") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(small_floats_are_folded_wide_among_few) {
  const selection_settings s;
  for (const dtype type : {dtype::f16, dtype::bf16, dtype::f8e4m3, dtype::f8e5m2})
    for (const std::uint64_t count : {1, 5000, 5000000})
      for (const kinds kind : {kinds::all_reduce, kinds::reduce, kinds::reduce_scatter}) {
        const call what = reduction_of(kind, type, count);
        BOOST_TEST(folds_wider(what));
        BOOST_TEST(keeps_folds_wide(choose(s, what, 16), what));
      }
  BOOST_TEST(!folds_wider(reduction_of(kinds::all_reduce, dtype::f16, 1, reduction::max)));
}

BOOST_AUTO_TEST_CASE(functions_that_mind_the_order_get_it) {
  selection_settings s;
  s.force(algorithm_kind::ring);
  call what = reduction_of(kinds::all_reduce, dtype::f32, 100000, reduction::user);
  what.user.order = commutativity::unknown;
  BOOST_TEST((choose(s, what, 20) != algorithm_kind::ring));
  what.user.order = commutativity::commutative;
  BOOST_TEST((choose(s, what, 20) == algorithm_kind::ring));
}

BOOST_AUTO_TEST_CASE(lines_carry_what_fits_them) {
  selection_settings s;
  s.all_lines = true;
  BOOST_TEST((choose(s, reduction_of(kinds::all_reduce, dtype::f64, 4), 4) == algorithm_kind::tiny));
  BOOST_TEST((choose(s, reduction_of(kinds::all_reduce, dtype::f64, 5), 4) != algorithm_kind::tiny));
  BOOST_TEST((choose(s, reduction_of(kinds::scan, dtype::f64, 1), 4) != algorithm_kind::tiny));
  BOOST_TEST((choose(s, barrier().what, 4) == algorithm_kind::tiny));
  const auto of = [](kinds kind, std::uint64_t count) {
    call what;
    what.kind = kind;
    what.type = dtype::f32;
    what.count = count;
    return what;
  };
  for (const kinds kind : {kinds::broadcast, kinds::all_gather}) {
    BOOST_TEST((choose(s, of(kind, 8), 4) == algorithm_kind::tiny));
    BOOST_TEST((choose(s, of(kind, 9), 4) != algorithm_kind::tiny));
    BOOST_TEST((choose(s, of(kind, 8), 17) != algorithm_kind::tiny));
  }
  // Its count is that of all shares.
  BOOST_TEST((choose(s, of(kinds::all_to_all, 32), 4) == algorithm_kind::tiny));
  BOOST_TEST((choose(s, of(kinds::all_to_all, 36), 4) != algorithm_kind::tiny));
  s.all_lines = false;
  BOOST_TEST((choose(s, of(kinds::broadcast, 8), 4) != algorithm_kind::tiny));
}

BOOST_AUTO_TEST_SUITE_END()
