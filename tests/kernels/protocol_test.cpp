// Counters, flags, verdicts, signatures, line and chunk maps; plans.
#include <chorale/kernels/plan.hpp>

#include <boost/test/unit_test.hpp>

#include <set>
#include <vector>

using namespace chorale::kernels;

BOOST_AUTO_TEST_SUITE(gpu_protocol)

BOOST_AUTO_TEST_CASE(counters_skip_what_a_cleared_slot_holds) {
  std::uint64_t c = (1ull << 32) - 3;
  std::vector<std::uint32_t> flags;
  std::vector<bool> rolls;
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t next = next_counter(c);
    flags.push_back(wire_flag(next));
    rolls.push_back(rolls_over(c, next));
    c = next;
  }
  BOOST_TEST(flags == (std::vector<std::uint32_t>{0xfffffffeu, 0xffffffffu, 1u, 2u, 3u}),
             boost::test_tools::per_element());
  BOOST_TEST(rolls == (std::vector<bool>{false, false, true, false, false}),
             boost::test_tools::per_element());
  BOOST_TEST(wire_flag(next_counter(0)) == 1u);
  BOOST_TEST(!rolls_over(0, 1));
}

BOOST_AUTO_TEST_CASE(verdicts_survive_packing) {
  for (std::int16_t culprit : {std::int16_t{-1}, std::int16_t{0}, std::int16_t{7}}) {
    const verdict v{0xdeadbeef, 18, culprit};
    BOOST_TEST((unpack(pack(v)) == v));
    BOOST_TEST(pack(v) != 0u);
  }
}

BOOST_AUTO_TEST_CASE(a_packet_is_whole_only_with_both_flags) {
  const packet p = make_packet(0x11223344, 0x55667788, 9);
  BOOST_TEST(carries(p, 9));
  BOOST_TEST(payload(p) == 0x5566778811223344ull);
  BOOST_TEST(!carries(p, 8));
  BOOST_TEST(!carries({p.low, 0}, 9));
  BOOST_TEST(!carries({0, p.high}, 9));
}

BOOST_AUTO_TEST_CASE(every_field_of_a_signature_travels) {
  const signature base{1ull << 40, kind_all_reduce, dtype_f32, op_sum, 0, 3};
  std::vector<signature> others(6, base);
  others[0].count += 1ull << 33;
  others[1].kind ^= 1;
  others[2].dtype ^= 1;
  others[3].op ^= 1;
  others[4].flags ^= 0x80;
  others[5].root = -1;
  const auto wire = [](const signature& s) {
    return std::pair{payload(signature_packet(s, 0, 1)), payload(signature_packet(s, 1, 1))};
  };
  for (const signature& other : others) BOOST_TEST((wire(other) != wire(base)));
}

BOOST_AUTO_TEST_CASE(lines_hold_every_word_once) {
  for (std::uint64_t count : {1ull, 2ull, 29ull, 30ull, 31ull, 61ull, 1000ull}) {
    std::multiset<std::uint64_t> words;
    for (std::uint64_t line = 0; line < lines_of(count); ++line)
      for (std::uint32_t lane = 0; lane < 8; ++lane) {
        words.insert(word_of_lane(line, lane));
        if (lane != 7) words.insert(word_of_lane(line, lane) + 1);
      }
    for (std::uint64_t w = 0; w < (count + 1) / 2; ++w) BOOST_TEST(words.count(w) == 1u);
    BOOST_TEST(words.size() == lines_of(count) * line_words);
  }
}

BOOST_AUTO_TEST_CASE(stripes_share_all_chunks) {
  for (std::uint64_t chunks : {0ull, 1ull, 7ull, 8ull, 9ull, 100ull})
    for (std::uint32_t stripes : {1u, 3u, 8u}) {
      std::uint64_t sum = 0;
      for (std::uint32_t s = 0; s < stripes; ++s) {
        std::uint64_t walked = 0;
        for (std::uint64_t k = s; k < chunks; k += stripes) ++walked;
        BOOST_TEST(walked == chunks_of_stripe(chunks, s, stripes));
        sum += walked;
      }
      BOOST_TEST(sum == chunks);
    }
}

BOOST_AUTO_TEST_CASE(layouts_do_not_overlap_and_fit) {
  for (std::uint32_t size = 2; size <= max_ranks; ++size) {
    group_limits limits;
    limits.size = size;
    limits.ll_bytes = 32768;
    limits.ll128_bytes = 4u << 20;
    limits.ring_chunk = 262144;
    const region_layout l = make_layout(limits);
    BOOST_TEST(l.packets >= l.signatures + 2 * max_ctas * (max_ranks - 1) * 32);
    BOOST_TEST(l.cleared_end >= l.packets + 2 * (size - 1) * l.packets_stride);
    BOOST_TEST(l.barriers >= l.cleared_end);
    BOOST_TEST(l.lines_stride * 15 >= limits.ll128_bytes * 16ull);
    BOOST_TEST(l.ring >= l.lines + 2 * (size - 1) * l.lines_stride);
    BOOST_TEST(l.total >= l.ring + (size - 1) * l.ring_source_stride);
  }
}

BOOST_AUTO_TEST_CASE(plans_keep_within_limits) {
  group_limits limits;
  limits.size = 2;
  limits.ll_bytes = 16384;
  limits.ll128_bytes = 16u << 20;
  limits.ring_chunk = 524288;
  for (std::uint64_t count = 0; count < (1ull << 33); count = count * 3 / 2 + 1) {
    const all_reduce_plan plan = plan_all_reduce(count, limits);
    BOOST_TEST(plan.ctas >= 1u);
    BOOST_TEST(plan.ctas <= limits.ctas);
    BOOST_TEST(plan.threads % 32 == 0u);
    BOOST_TEST(plan.threads <= 1024u);
    if (plan.way == algorithm::packets) {
      BOOST_TEST(count * 4 <= limits.ll_bytes);
    }
    if (plan.way == algorithm::ring) {
      BOOST_TEST(plan.chunk * 4 <= limits.ring_chunk);
      BOOST_TEST(plan.chunk * 4 % 16384 == 0u);
    }
  }
  limits.ll128_bytes = 0;  // a rank has no line-atomic link: nobody may plan lines
  BOOST_TEST((plan_all_reduce(100'000, limits).way == algorithm::ring));
}

BOOST_AUTO_TEST_SUITE_END()
