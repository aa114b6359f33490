// What a call says of itself, and what is refused before it takes its place: every bad argument has its own
// text.
#include <chorale/api/description.hpp>
#include <chorale/collective/recent_calls.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <limits>
#include <string>
#include <vector>

using namespace chorale;

namespace {

using counts = std::vector<std::uint64_t>;

struct memory {
  alignas(64) std::array<float, 64> floats{};
  std::array<float, 64> others{};
  std::span<float> a = floats;
  std::span<float> b = others;
};

/// `word` has to be in the text of the refusal.
void refused(const described_call& d, rank_t rank, rank_t ranks, const std::string& word,
             errc code = errc::invalid_argument) {
  auto valid = validate(d.what, rank, ranks);
  BOOST_TEST(!valid, "accepted: " << word);
  if (valid) return;
  const std::string text = valid.error().message();
  BOOST_TEST((valid.error() == code), text);
  BOOST_TEST(text.find(word) != std::string::npos, "no \"" << word << "\" in " << text);
  BOOST_TEST(text.find(name_of(d.what.kind)) != std::string::npos, text);
}

void accepted(const described_call& d, rank_t rank, rank_t ranks) {
  auto valid = validate(d.what, rank, ranks);
  BOOST_TEST(!!valid, (valid ? "" : valid.error().message()));
}

std::string text_of(const described_call& d) { return describe(signature_of(d.what)); }

}  // namespace

BOOST_AUTO_TEST_SUITE(calls)

BOOST_AUTO_TEST_CASE(lengths) {
  memory m;
  refused(all_reduce(m.a.first(5), m.b.first(6)), 0, 2, "the output has 6 elements and needs 5");
  refused(all_gather(m.a.first(5), m.b.first(11)), 0, 2, "the output has 11 elements and needs 10");
  refused(reduce_scatter(m.a.first(9), m.b.first(5)), 0, 2, "the input has 9 elements and needs 10");
  refused(gather(m.a.first(5), m.b.first(6), 0), 0, 2, "the output has 6 elements and needs 10");
  accepted(gather(m.a.first(5), m.b.first(6), 0), 1, 2);
  accepted(gather(m.a.first(5), std::span<float>{}, 0), 1, 2);
  refused(scatter(m.a.first(5), m.b.first(5), 1), 1, 2, "the input has 5 elements and needs 10");
  accepted(scatter(std::span<const float>{}, m.b.first(5), 1), 0, 2);
  refused(all_to_all(m.a.first(7), m.b.first(7)), 0, 2, "no equal share");
  refused(all_to_all(m.a.first(8), m.b.first(6)), 0, 2, "the output has 6 elements and needs 8");
  refused(broadcast(m.a.first(4), m.b.first(5), 0), 0, 2, "the input has 4 elements and needs 5");
  accepted(broadcast(std::span<const float>{}, m.b.first(5), 1), 0, 2);
  accepted(chorale::reduce(m.a.first(5), std::span<float>{}, 1), 0, 2);
  refused(chorale::reduce(m.a.first(5), std::span<float>{}, 0), 0, 2,
          "the output has 0 elements and needs 5");
}

BOOST_AUTO_TEST_CASE(counts_of_ranks) {
  memory m;
  refused(all_gather_v(m.a.first(1), m.b.first(6), counts{1, 2}), 0, 3, "2 counts for 3 ranks");
  refused(all_gather_v(m.a.first(2), m.b.first(6), counts{1, 2, 3}), 0, 3,
          "the input has 2 elements and needs 1");
  refused(all_gather_v(m.a.first(1), m.b.first(7), counts{1, 2, 3}), 0, 3,
          "the output has 7 elements and needs 6");
  refused(reduce_scatter_v(m.a.first(6), m.b.first(1), counts{1, 2, 3}), 1, 3,
          "the output has 1 elements and needs 2");
  refused(gather_v(m.a.first(1), m.b.first(5), counts{1, 2, 3}, 0), 0, 3,
          "the output has 5 elements and needs 6");
  refused(scatter_v(m.a.first(5), m.b.first(1), counts{1, 2, 3}, 0), 0, 3,
          "the input has 5 elements and needs 6");
  refused(all_to_all_v(m.a.first(3), m.b.first(3), counts{1, 2}, counts{1}), 0, 2, "1 counts for 2 ranks");
  refused(all_to_all_v(m.a.first(4), m.b.first(3), counts{1, 2}, counts{1, 2}), 0, 2,
          "the input has 4 elements and needs 3");
  const std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
  refused(all_gather_v(m.a.first(1), m.b.first(1), counts{huge, 2}), 0, 2, "too large");
  refused(all_to_all_v(m.a.first(1), m.b.first(1), counts{1, 0}, counts{huge, huge}), 0, 2, "too large");
  accepted(all_gather_v(std::span<const float>{}, m.b.first(3), counts{0, 3}), 0, 2);
}

BOOST_AUTO_TEST_CASE(ranks_and_roots) {
  memory m;
  refused(broadcast(m.a, 3), 0, 3, "root 3 is not a rank");
  refused(broadcast(m.a, -1), 0, 3, "root -1 is not a rank");
  refused(chorale::reduce(m.a, m.b, 9), 0, 3, "root 9 is not a rank");
  refused(gather_v(m.a, m.b, counts{64}, 1), 0, 1, "root 1 is not a rank");
  refused(send(m.a, 5), 0, 3, "destination 5 is not a rank");
  refused(recv(m.a, 3), 0, 3, "source 3 is not a rank");
}

BOOST_AUTO_TEST_CASE(memory_that_cannot_be) {
  memory m;
  const std::span<float> null{static_cast<float*>(nullptr), 4};
  refused(all_reduce(null, m.b.first(4)), 0, 2, "the input is null");
  refused(all_reduce(m.a.first(4), null), 0, 2, "the output is null");
  accepted(all_reduce(null.first(0), null.first(0)), 0, 2);
  const std::span<float> crooked{reinterpret_cast<float*>(reinterpret_cast<std::byte*>(m.floats.data()) + 2),
                                 4};
  refused(all_reduce(crooked, m.b.first(4)), 0, 2, "the input is not aligned to its elements of 4 bytes");
  refused(broadcast(crooked, 0), 1, 2, "the output is not aligned");
}

BOOST_AUTO_TEST_CASE(overlap) {
  memory m;
  accepted(all_reduce(m.a, m.a), 0, 2);
  refused(all_reduce(m.a.first(8), m.a.subspan(4, 8)), 0, 2, "pass the same buffer for both");
  refused(scan(m.a.first(8), m.a.subspan(7, 8)), 0, 2, "overlap");
  accepted(all_gather(m.a.subspan(4, 4), m.a.first(8)), 1, 2);
  refused(all_gather(m.a.subspan(4, 4), m.a.first(8)), 0, 2, "own share");
  accepted(reduce_scatter(m.a.first(8), m.a.subspan(4, 4)), 1, 2);
  refused(reduce_scatter(m.a.first(8), m.a.subspan(4, 4)), 0, 2, "own share");
  accepted(gather(m.a.first(4), m.a.first(8), 0), 0, 2);
  accepted(gather(m.a.first(4), m.a.first(8), 1), 0, 2);  // no output here
  refused(gather(m.a.subspan(1, 4), m.a.first(8), 0), 0, 2, "own share");
  accepted(scatter(m.a.first(8), m.a.subspan(4, 4), 1), 1, 2);
  refused(scatter(m.a.first(8), m.a.subspan(3, 4), 1), 1, 2, "own share");
  refused(all_to_all(m.a.first(8), m.a.first(8)), 0, 2, "no in-place form");
  refused(all_to_all_v(m.a.first(2), m.a.first(2), counts{1, 1}, counts{1, 1}), 0, 2, "no in-place form");
  accepted(all_gather_v(m.a.subspan(3, 2), m.a.first(5), counts{3, 2}), 1, 2);
  refused(all_gather_v(m.a.subspan(2, 2), m.a.first(5), counts{3, 2}), 1, 2, "own share");
  refused(broadcast(m.a.first(8), m.a.subspan(2, 8), 0), 0, 2, "overlap");
}

BOOST_AUTO_TEST_CASE(operations) {
  memory m;
  refused(scan(m.a, m.b, avg), 0, 2, "average");
  refused(exscan(m.a, m.b, avg), 0, 2, "average");
  refused(all_reduce(m.a, m.b, premul_sum(2.0)), 0, 2, "scalar of f64 for elements of f32");
  refused(all_reduce(m.a, m.b, reduction::premul_sum), 0, 2, "scalar of none");
  refused(all_reduce(m.a, m.b, reduction::user), 0, 2, "no function");
  refused(all_reduce(m.a, m.b, reduction::none), 0, 2, "no operation");
  accepted(all_reduce(m.a, m.b, premul_sum(2.0F)), 0, 2);
}

BOOST_AUTO_TEST_CASE(texts) {
  memory m;
  BOOST_TEST(text_of(all_reduce(m.a, m.b)) == "all_reduce of 64 × f32, sum");
  BOOST_TEST(text_of(broadcast(m.a, 2)) == "broadcast of 64 × f32, root 2");
  BOOST_TEST(text_of(gather(m.a.first(3), m.b.first(9), 1)) == "gather of 3 × f32 a rank, root 1");
  BOOST_TEST(text_of(barrier()) == "barrier");
  const std::string v = text_of(reduce_scatter_v(m.a.first(3), m.b.first(1), counts{1, 2}, chorale::max));
  BOOST_TEST(v.starts_with("reduce_scatter_v of 3 × f32 in counts #"), v);
  BOOST_TEST(v.ends_with(", max"), v);
}

// What rides on an edge is the same from both ends, and names both directions.
BOOST_AUTO_TEST_CASE(signatures_of_pairs) {
  memory m;
  const described_call low = all_to_all_v(m.a.first(5), m.b.first(7), counts{0, 5}, counts{0, 7});
  const described_call high = all_to_all_v(m.a.first(7), m.b.first(5), counts{7, 0}, counts{5, 0});
  const auto from_low = signature_between(signature_of(low.what), low.what.counts.get(), 0, 1);
  const auto from_high = signature_between(signature_of(high.what), high.what.counts.get(), 1, 0);
  BOOST_TEST((from_low == from_high));
  BOOST_TEST(describe(from_low) == "all_to_all_v of 5 × f32 to the higher rank and 7 to the lower");
}

BOOST_AUTO_TEST_CASE(only_the_very_same_call_is_known_from_before) {
  memory m;
  recent_calls known;
  BOOST_TEST(!known.find(call{}));
  const call made = chorale::all_reduce(m.a, m.b).what;
  known.remember(made, {});
  BOOST_TEST(known.find(made));
  BOOST_TEST(known.find(chorale::all_reduce(m.a, m.b).what));
  const std::span<const float> shorter = m.a.first(63);
  for (const described_call& other :
       {chorale::all_reduce(m.b, m.a), chorale::all_reduce(m.a), chorale::all_reduce(shorter, m.b),
        chorale::all_reduce(m.a, m.b, chorale::max), chorale::scan(m.a, m.b), chorale::reduce(m.a, m.b, 1),
        chorale::all_gather(m.a, m.b)})
    BOOST_TEST(!known.find(other.what));
  call retyped = made;
  retyped.type = dtype::i32;
  BOOST_TEST(!known.find(retyped));
  call elsewhere = made;
  elsewhere.on_device = true;  // pinned memory has one address for both
  BOOST_TEST(!known.find(elsewhere));
  const call message = chorale::send(m.a, 1).what;
  known.remember(message, {});
  BOOST_TEST(!known.find(message));
  for (int i = 0; i < 10; ++i)
    known.remember(chorale::all_reduce(m.a.first(static_cast<std::size_t>(i)), m.b).what, {});
  BOOST_TEST(!known.find(made));  // forgotten by now
}

BOOST_AUTO_TEST_SUITE_END()
