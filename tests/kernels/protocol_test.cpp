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
    rolls.push_back(rolls_over(next));
    c = next;
  }
  BOOST_TEST(flags == (std::vector<std::uint32_t>{0xfffffffeu, 0xffffffffu, 1u, 2u, 3u}),
             boost::test_tools::per_element());
  BOOST_TEST(rolls == (std::vector<bool>{false, false, true, false, false}),
             boost::test_tools::per_element());
  BOOST_TEST(wire_flag(next_counter(0)) == 1u);
  BOOST_TEST(!rolls_over(1));
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
  exchange_args base{};
  base.kinds = signature_kinds(1, 9, 1, 3);
  base.edges[2].count = 1ull << 40;
  base.edges[2].pair = 77;
  std::vector<exchange_args> others(6, base);
  others[0].edges[2].count += 1ull << 33;
  others[1].edges[2].pair += 1ull << 35;
  others[2].kinds = signature_kinds(2, 9, 1, 3);
  others[3].kinds = signature_kinds(1, 8, 1, 3);
  others[4].kinds = signature_kinds(1, 9, 2, 3);
  others[5].kinds = signature_kinds(1, 9, 1, -1);
  const auto wire = [](const exchange_args& args) {
    std::vector<std::uint64_t> parts;
    for (std::uint32_t part = 0; part < signature_parts; ++part)
      parts.push_back(payload(signature_packet(args, 2, part, 1)));
    return parts;
  };
  for (const exchange_args& other : others) BOOST_TEST((wire(other) != wire(base)));
}

BOOST_AUTO_TEST_CASE(lines_hold_every_word_once) {
  for (std::uint64_t bytes : {1ull, 8ull, 119ull, 120ull, 121ull, 244ull, 4000ull}) {
    std::multiset<std::uint64_t> words;
    for (std::uint64_t line = 0; line < lines_of(bytes); ++line)
      for (std::uint32_t lane = 0; lane < 8; ++lane) {
        words.insert(word_of_lane(line, lane));
        if (lane != 7) words.insert(word_of_lane(line, lane) + 1);
      }
    for (std::uint64_t w = 0; w < words_of(bytes); ++w) BOOST_TEST(words.count(w) == 1u);
    BOOST_TEST(words.size() == lines_of(bytes) * line_words);
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
    BOOST_TEST(units(l.packets) >= units(l.signatures) + (max_ranks - 1) * signatures_stride);
    BOOST_TEST(units(l.packets_stride) >= limits.ll_bytes * 2ull);
    BOOST_TEST(l.barriers >= l.packets + 2 * (size - 1) * l.packets_stride);
    BOOST_TEST(units(l.lines_stride) * 15 >= limits.ll128_bytes * 16ull);
    BOOST_TEST(l.ring >= l.lines + 2 * (size - 1) * l.lines_stride);
    BOOST_TEST(l.total >= l.ring + (size - 1) * l.ring_source_stride);
  }
}

BOOST_AUTO_TEST_CASE(plans_keep_within_limits) {
  for (std::uint32_t size : {1u, 2u, 3u, 5u, 8u}) {
    group_limits limits;
    limits.size = size;
    limits.ll_bytes = 16384;
    limits.ll128_bytes = 2u << 20;
    limits.ring_chunk = 524288;
    const region_layout l = make_layout(limits);
    for (std::uint64_t bytes = 0; bytes < (1ull << 34); bytes = bytes * 3 / 2 + 1)
      for (const exchange_plan& plan : {plan_exchange(bytes, limits), plan_all_reduce(bytes, limits)}) {
        const std::uint64_t part = plan.gathers ? share_bytes(bytes, size) : bytes;
        BOOST_TEST(plan.ctas >= 1u);
        BOOST_TEST(plan.ctas <= limits.ctas);
        BOOST_TEST(plan.threads % 32 == 0u);
        BOOST_TEST(plan.threads <= 576u);
        if (plan.way == algorithm::packets && size > 1) BOOST_TEST(part <= limits.ll_bytes);
        if (plan.way == algorithm::lines)
          BOOST_TEST((plan.gathers ? 2 : 1) * lines_of(part) * line_bytes <= units(l.lines_stride));
        if (plan.way == algorithm::ring) {
          BOOST_TEST(plan.chunk <= limits.ring_chunk);
          BOOST_TEST(plan.chunk % 16384 == 0u);
        }
        if (size <= 2) BOOST_TEST(!plan.gathers);
      }
    limits.ll128_bytes = 0;  // a rank has no line-atomic link: nobody may plan lines
    if (size > 1) BOOST_TEST((plan_all_reduce(400'000, limits).way == algorithm::ring));
  }
}

BOOST_AUTO_TEST_CASE(shares_cover_a_vector_once) {
  for (std::uint64_t bytes : {0ull, 1ull, 127ull, 128ull, 1000ull, 123'456ull})
    for (std::uint32_t ranks : {2u, 3u, 8u}) {
      std::uint64_t end = 0;
      for (std::uint32_t r = 0; r < ranks; ++r) {
        const shared_range part = share_range(bytes, ranks, r);
        BOOST_TEST(part.begin == end);
        BOOST_TEST(part.bytes <= share_bytes(bytes, ranks));
        end = part.begin + part.bytes;
      }
      BOOST_TEST(end == bytes);
    }
}

BOOST_AUTO_TEST_SUITE_END()
