#include "reference_executor.hpp"
#include <chorale/schedule/checker.hpp>
#include <chorale/schedule/lowering.hpp>
#include <chorale/schedule/msccl.hpp>

#include <boost/test/unit_test.hpp>

#include <fstream>
#include <iterator>
#include <random>
#include <string>

namespace {

using namespace chorale::schedule;
using chorale::errc;
using chorale::rank_t;

const std::string folder = CHORALE_TEST_DATA "/schedules/";
const std::string ring_file = folder + "msccl-allreduce-ring.xml";
const std::string pairs_file = folder + "msccl-allreduce-allpairs-8.xml";

template <class T>
std::string why(const chorale::result<T>& r) {
  return r ? "" : r.error().message();
}

std::string text_of(const std::string& file) {
  std::ifstream stream{file};
  return {std::istreambuf_iterator<char>{stream}, {}};
}

/// Replaces the first `from` after `after`.
std::string replaced(std::string text, std::string_view after, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from, text.find(after));
  BOOST_REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// Two GPUs that exchange one chunk and sum it; one line per element.
const std::string exchange =
    R"(<algo name="exchange" nchunksperloop="1" ngpus="2" coll="allreduce" inplace="1" outofplace="1">
<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="1">
<tb id="0" send="1" recv="-1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb>
<tb id="1" send="-1" recv="1" chan="0">
<step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="0" deps="0" hasdep="0"/>
<step s="2" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="3" type="re" srcbuf="s" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb>
</gpu>
<gpu id="1" i_chunks="1" o_chunks="1" s_chunks="1">
<tb id="0" send="0" recv="0" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb>
</gpu>
</algo>
)";

std::string complaint(const std::string& xml) {
  const auto made = parse_msccl(xml, "test.xml");
  return made ? "accepted" : made.error().detail();
}

void complains(const std::string& xml, std::initializer_list<std::string_view> parts) {
  const std::string said = complaint(xml);
  for (const std::string_view part : parts)
    BOOST_TEST(said.find(part) != std::string::npos, "\"" << part << "\" is missing in: " << said);
}

/// Executes an all_reduce of small integers; true when every rank has the sum.
bool sums(const algorithm& a, placement form, std::uint64_t count, std::uint32_t pieces) {
  const auto n = static_cast<std::size_t>(a.what().ranks);
  const block_map blocks = block_map::even(a.what(), count);
  std::vector<std::vector<std::int64_t>> in(n, std::vector<std::int64_t>(count));
  std::vector<std::vector<std::int64_t>> out(n, std::vector<std::int64_t>(count));
  std::vector<std::int64_t> wanted(count);
  std::vector<plan> plans;
  std::vector<reference::rank_memory<std::int64_t>> memory;
  for (std::size_t r = 0; r < n; ++r) {
    for (std::uint64_t i = 0; i < count; ++i) {
      in[r][i] = static_cast<std::int64_t>((r + 1) * 1000 + i);
      wanted[i] += in[r][i];
    }
    auto made =
        lower(a, static_cast<rank_t>(r), blocks, {.element_bytes = 8, .form = form, .pieces = pieces});
    BOOST_REQUIRE(made.has_value());
    plans.push_back(std::move(*made));
    const bool in_place = form == placement::in_place;
    memory.push_back({in[r].data(), in_place ? in[r].data() : out[r].data(), {}});
  }
  reference::executor run{std::move(plans), std::move(memory), std::plus<std::int64_t>{}, 1};
  BOOST_TEST(run.run() == "");
  const auto& results = form == placement::in_place ? in : out;
  return std::all_of(results.begin(), results.end(), [&](const auto& x) { return x == wanted; });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(msccl)

BOOST_AUTO_TEST_CASE(the_ring_file_loads_and_passes) {
  const auto ring = load_msccl(ring_file);
  BOOST_REQUIRE_MESSAGE(ring.has_value(), why(ring));
  BOOST_TEST(ring->name() == "allreduce_ring_mi200");
  BOOST_TEST(ring->what().ranks == 16);
  for (const placement form : {placement::out_of_place, placement::in_place}) {
    const auto report = check(*ring, {.form = form});
    BOOST_REQUIRE_MESSAGE(report.has_value(), why(report));
    BOOST_TEST(report->steps == 11904U);
  }
}

BOOST_AUTO_TEST_CASE(the_all_pairs_file_loads_and_passes_in_place) {
  const auto pairs = load_msccl(pairs_file);
  BOOST_REQUIRE_MESSAGE(pairs.has_value(), why(pairs));
  BOOST_TEST(!pairs->allows(placement::out_of_place));
  const auto report = check(*pairs, {.form = placement::in_place, .slots = 1});
  BOOST_REQUIRE_MESSAGE(report.has_value(), why(report));
  BOOST_TEST(report->steps == 5376U);
  BOOST_TEST(report->most_scratch_blocks == 448U);
}

BOOST_AUTO_TEST_CASE(imported_schedules_compute_sums) {
  const auto small = parse_msccl(exchange, "exchange.xml");
  BOOST_REQUIRE_MESSAGE(small.has_value(), why(small));
  BOOST_TEST(sums(*small, placement::out_of_place, 5, 1));
  BOOST_TEST(sums(*small, placement::out_of_place, 5, 3));
  const auto ring = load_msccl(ring_file);
  BOOST_TEST(sums(*ring, placement::out_of_place, 1000, 1));
  BOOST_TEST(sums(*ring, placement::in_place, 1000, 2));
  const auto pairs = load_msccl(pairs_file);
  // Neither count is a multiple of the 512 chunks: scratch chunks have the sizes of what they hold.
  BOOST_TEST(sums(*pairs, placement::in_place, 1300, 1));
  BOOST_TEST(sums(*pairs, placement::in_place, 0, 1));
  const auto cut =
      lower(*pairs, 0, block_map::even(pairs->what(), 700), {.form = placement::in_place, .pieces = 2});
  BOOST_REQUIRE(!cut.has_value());
  BOOST_TEST(cut.error().detail().find("runs of blocks") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(hand_broken_files_fail_with_the_step_named) {
  const std::string ring = text_of(ring_file);
  const auto wrong_chunk = parse_msccl(replaced(ring, "s=\"1\"", "srcoff=\"36\"", "srcoff=\"37\""), "ring");
  BOOST_REQUIRE(wrong_chunk.has_value());
  const auto judged = check(*wrong_chunk);
  BOOST_REQUIRE(!judged.has_value());
  BOOST_TEST(judged.error().culprit() == 0);
  BOOST_TEST(judged.error().detail().find("rank 0, step 1 (recv_reduce_send") != std::string::npos);

  const std::string pairs = text_of(pairs_file);
  const auto undone = parse_msccl(
      replaced(pairs, "<gpu id=\"3\"", "depid=\"8\" deps=\"1\"", "depid=\"-1\" deps=\"-1\""), "pairs");
  BOOST_REQUIRE(undone.has_value());
  const auto race = check(*undone, {.form = placement::in_place});
  BOOST_REQUIRE(!race.has_value());
  BOOST_TEST(race.error().culprit() == 3);
  BOOST_TEST(race.error().detail().find("nothing orders them") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(an_operand_order_that_differs_between_ranks_is_found) {
  const auto made = parse_msccl(exchange, "exchange.xml");
  const auto strict = check(*made);
  BOOST_REQUIRE(!strict.has_value());
  BOOST_TEST(strict.error().detail().find("another expression") != std::string::npos);
  BOOST_TEST(check(*made, {.required = expression::any}).has_value());
}

BOOST_AUTO_TEST_CASE(bad_files_are_refused_with_line_and_advice) {
  complains("", {"test.xml:1"});
  complains("<algo", {"test.xml:1", "no well-formed XML"});
  complains("<other/>", {"test.xml:1", "no <algo>"});
  complains(replaced(exchange, "", "allreduce", "gossip"), {"test.xml:1", "coll=\"gossip\""});
  complains(replaced(exchange, "", "ngpus=\"2\"", "ngpus=\"3\""), {"test.xml:1", "no <gpu id=\"2\">"});
  complains(replaced(exchange, "", "inplace=\"1\" outofplace=\"1\"", "inplace=\"0\" outofplace=\"0\""),
            {"test.xml:1", "neither"});
  complains(replaced(exchange, "", "gpu id=\"1\"", "gpu id=\"0\""), {"test.xml:13", "a second time"});
  complains(replaced(exchange, "", "type=\"cpy\"", "type=\"mul\""), {"test.xml:9", "type=\"mul\""});
  complains(replaced(exchange, "", "srcbuf=\"i\"", "srcbuf=\"x\""), {"test.xml:4", "use i, o or s"});
  complains(replaced(exchange, "", "send=\"1\"", "send=\"2\""), {"test.xml:3", "from -1 to 1"});
  complains(replaced(exchange, "", "send=\"1\"", "send=\"-1\""), {"test.xml:4", "needs a peer"});
  complains(replaced(exchange, "", "cnt=\"1\"", "cnt=\"many\""), {"test.xml:4", "cnt=\"many\""});
  complains(replaced(exchange, "", "tb id=\"1\"", "tb id=\"7\""), {"test.xml:6", "out of order"});
  complains(replaced(exchange, "", "s=\"1\" type=\"nop\"", "s=\"5\" type=\"nop\""),
            {"test.xml:8", "out of order"});
  complains(replaced(exchange, "", "depid=\"0\" deps=\"0\"", "depid=\"4\" deps=\"0\""),
            {"test.xml:8", "thread block 4"});
  complains(replaced(exchange, "", "depid=\"0\" deps=\"0\"", "depid=\"0\" deps=\"9\""),
            {"test.xml:8", "step 9"});
  complains(replaced(exchange, "", "depid=\"-1\" deps=\"-1\"", "depid=\"1\" deps=\"1\""),
            {"waits for a step that waits for it"});
  complains(replaced(exchange, "", "send=\"-1\" recv=\"1\"", "send=\"1\" recv=\"1\""),
            {"test.xml:6", "shares an edge"});
  const auto absent = load_msccl(folder + "absent.xml");
  BOOST_REQUIRE(!absent.has_value());
  BOOST_TEST(absent.error().detail().find("cannot be read") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(damaged_text_is_refused_or_judged_never_trusted) {
  const std::uint64_t seed = std::random_device{}();
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 random{seed};
  const std::string letters = "0123456789-<>/\"= irscopn";
  for (int round = 0; round < 3000; ++round) {
    std::string text = exchange;
    for (std::uint64_t change = random() % 3 + 1; change > 0; --change)
      text[random() % text.size()] = letters[random() % letters.size()];
    const auto made = parse_msccl(text, "damaged.xml");
    if (!made) {
      BOOST_TEST(made.error().detail().starts_with("damaged.xml:"), "seed " << seed << ": " << why(made));
      continue;
    }
    for (const placement form : {placement::out_of_place, placement::in_place}) {
      const auto report = check(*made, {.form = form, .required = expression::any});
      // What passes must also compute the sum.
      if (report) BOOST_TEST(sums(*made, form, 7, 1), "seed " << seed << ", round " << round);
    }
  }
}

BOOST_AUTO_TEST_CASE(greedy_files_are_refused) {
  complains(replaced(exchange, "", "nchunksperloop=\"1\"", "nchunksperloop=\"9999999\""), {"test.xml:1"});
  const std::string many =
      "<algo nchunksperloop=\"1048576\" ngpus=\"65536\" coll=\"allreduce\" inplace=\"1\" "
      "outofplace=\"1\"></algo>";
  complains(many, {"test.xml:1", "held or moved"});
}

BOOST_AUTO_TEST_SUITE_END()
