// The driver of comparisons, against sides that are shell scripts: what they answer is known, and so is the
// outcome.
#include "../../bench/versus/comparison.hpp"

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <cstdlib>
#include <string>

namespace {

using namespace chorale;
using namespace chorale::bench;
using namespace chorale::bench::versus;

constexpr duration patience = std::chrono::seconds{10};

contestant_plan script(std::string side, const std::string& text) {
  contestant_plan plan;
  plan.side = std::move(side);
  plan.commands = {{"sh", "-c", text}};
  return plan;
}

/// Answers every check with `wrong` and every run with `time_us`.
contestant_plan steady(std::string side, const std::string& time_us, const std::string& wrong) {
  return script(std::move(side),
                "echo noise; echo '= ready a script'; while read verb rest; do case $verb in "
                "check) echo '= " +
                    wrong + "';; run) echo '= " + time_us + " 9.5';; esac; done");
}

comparison_options one_size() {
  comparison_options options;
  options.common.begin = options.common.end = 64;
  options.common.iterations = 3;
  options.common.format = report_format::json;
  options.what = {find_collective("all_reduce"), "shm", 2};
  options.alternations = 3;
  return options;
}

/// What a comparison prints, and its exit code.
struct printed {
  int code = -1;
  std::string text;
};
printed run(comparison_options options, contestant_plan ours, std::vector<contestant_plan> peers) {
  std::fflush(stdout);
  char path[] = "/tmp/chorale-comparison-XXXXXX";
  const int file = ::mkstemp(path);
  const int kept = ::dup(1);
  BOOST_TEST_REQUIRE((file >= 0 && kept >= 0));
  ::dup2(file, 1);
  printed p;
  p.code = comparison{std::move(options), std::move(ours), std::move(peers)}.run();
  std::fflush(stdout);
  ::dup2(kept, 1);
  ::lseek(file, 0, SEEK_SET);
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(file, buffer, sizeof buffer)) > 0;)
    p.text.append(buffer, static_cast<std::size_t>(got));
  ::close(kept);
  ::close(file);
  ::unlink(path);
  return p;
}

BOOST_AUTO_TEST_SUITE(comparisons)

BOOST_AUTO_TEST_CASE(the_best_setting_of_a_peer_counts) {
  const printed p =
      run(one_size(), steady("ours", "10", "0"), {steady("slow", "50", "0"), steady("fast", "20", "0")});
  BOOST_TEST_CONTEXT(p.text) {
    BOOST_TEST(p.code == 0);
    BOOST_TEST((p.text.find("\"peer\":\"fast\"") != std::string::npos));
    BOOST_TEST((p.text.find("\"ratio\":2.0") != std::string::npos));
    BOOST_TEST((p.text.find("\"wrong\":0") != std::string::npos));
  }
}

BOOST_AUTO_TEST_CASE(losses_are_told) {
  comparison_options options = one_size();
  options.common.format = report_format::table;
  const printed p = run(options, steady("ours", "10", "0"), {steady("peer", "5", "0")});
  BOOST_TEST_CONTEXT(p.text) {
    BOOST_TEST(p.code == 0);
    BOOST_TEST((p.text.find("geometric mean 0.50, worst 0.50 at 64 B to peer; 0 won, 0 tied, 1 lost") !=
                std::string::npos));
    BOOST_TEST((p.text.find("# lost: 64 B 0.50 to peer") != std::string::npos));
  }
}

BOOST_AUTO_TEST_CASE(wrong_results_of_ours_fail_and_of_a_peer_leave_it_out) {
  BOOST_TEST(run(one_size(), steady("ours", "10", "3"), {steady("peer", "20", "0")}).code == 1);
  const printed p =
      run(one_size(), steady("ours", "10", "0"), {steady("broken", "1", "5"), steady("right", "30", "0")});
  BOOST_TEST_CONTEXT(p.text) {
    BOOST_TEST(p.code == 0);
    BOOST_TEST((p.text.find("\"peer\":\"right\"") != std::string::npos));
    BOOST_TEST((p.text.find("broken") == std::string::npos));
  }
}

BOOST_AUTO_TEST_CASE(peers_that_cannot_or_end_leave_the_others) {
  const contestant_plan refuses =
      script("refuses", "echo '= ready r'; while read x; do echo '= no such collective'; done");
  const contestant_plan ends = script("ends", "echo '= ready e'; read x; exit 3");
  const contestant_plan absent = script("absent", "exit 1");
  const printed p =
      run(one_size(), steady("ours", "10", "0"), {refuses, ends, absent, steady("peer", "20", "0")});
  BOOST_TEST_CONTEXT(p.text) {
    BOOST_TEST(p.code == 0);
    BOOST_TEST((p.text.find("\"peer\":\"peer\"") != std::string::npos));
  }
  BOOST_TEST(run(one_size(), steady("ours", "10", "0"), {refuses}).code == 1);
  BOOST_TEST(run(one_size(), ends, {steady("peer", "20", "0")}).code == 1);
}

BOOST_AUTO_TEST_CASE(a_side_that_hangs_is_given_up_and_ended) {
  ::signal(SIGPIPE, SIG_IGN);
  auto started = contestant::start(script("hangs", "echo '= ready h'; while :; do read x; done"), patience);
  BOOST_TEST_REQUIRE(started.has_value());
  BOOST_TEST((*started)->name() == "h");
  const auto said = (*started)->ask("run all_reduce 8 1 0", std::chrono::milliseconds{50});
  BOOST_TEST_REQUIRE(!said.has_value());
  BOOST_TEST((said.error().code() == errc::timed_out));
  BOOST_TEST((said.error().message().find("hangs") != std::string::npos));
}

BOOST_AUTO_TEST_CASE(every_rank_reads_its_own_commands) {
  contestant_plan plan;
  plan.side = "two";
  plan.fifos = 2;
  // Rank 1 answers too, in its own words: what it was asked shows that its fifo is another.
  for (const char* rank : {"0", "1"})
    plan.commands.push_back({"sh", "-c",
                             std::string{"exec <FOLDER/"} + rank +
                                 (*rank == '0' ? "; echo '= ready two'; read x; echo \"= $x\""
                                               : "; read x; echo \"not for the driver: $x\"")});
  auto started = contestant::start(plan, patience);
  BOOST_TEST_REQUIRE(started.has_value());
  const auto said = (*started)->ask("check barrier 0", patience);
  BOOST_TEST_REQUIRE(said.has_value());
  BOOST_TEST(*said == "check barrier 0");
}

BOOST_AUTO_TEST_CASE(ratios_are_summed_up) {
  verdict v;
  v.add(8, 2.0, "a");
  v.add(65536, 0.5, "b");
  v.add(1024, 1.01, "a");
  BOOST_TEST(v.summary() == "geometric mean 1.00, worst 0.50 at 64 KiB to b; 1 won, 1 tied, 1 lost");
  BOOST_TEST(v.losses() == "lost: 64 KiB 0.50 to b");
  BOOST_TEST((outcome_of(1.021) == outcome::won && outcome_of(0.99) == outcome::tied &&
              outcome_of(0.97) == outcome::lost));
  BOOST_TEST(text_of_bytes(1000) == "1000 B");
  BOOST_TEST(text_of_bytes(std::uint64_t{3} << 20) == "3 MiB");
  BOOST_TEST(median({5, 1, 3}) == 3);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
