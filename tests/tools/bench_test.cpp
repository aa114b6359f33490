// `chorale bench` as its users meet it: every collective, its rows, and what wrong arguments are told.
#include "program.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace chorale::tools_test;
using nlohmann::json;

outcome bench(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{variable("CHORALE_TOOL"), "bench"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return finish(start_program(std::move(command)));
}

std::vector<json> rows_of(const outcome& o) {
  std::vector<json> rows;
  std::istringstream lines{o.output};
  for (std::string line; std::getline(lines, line);) {
    json row = json::parse(line, nullptr, false);
    BOOST_TEST_REQUIRE(!row.is_discarded(), line);
    rows.push_back(std::move(row));
  }
  return rows;
}

const std::vector<std::string> collectives{"all_reduce",     "reduce",     "broadcast", "all_gather",
                                           "reduce_scatter", "all_to_all", "gather",    "scatter",
                                           "scan",           "exscan",     "sendrecv",  "barrier"};

BOOST_AUTO_TEST_SUITE(benchmarks)

BOOST_AUTO_TEST_CASE(every_collective_is_measured_and_right) {
  for (const std::string& name : collectives) {
    const outcome o = bench({name, "--ranks", "3", "--format", "json", "-b", "12", "-e", "30000", "-f", "50",
                             "-n", "3", "-w", "1"});
    BOOST_TEST_CONTEXT(name << "\n" << o.output) {
      BOOST_TEST_REQUIRE(o.code == 0);
      const std::vector<json> rows = rows_of(o);
      BOOST_TEST_REQUIRE(!rows.empty());
      for (const json& row : rows) {
        BOOST_TEST(row.at("collective") == name);
        BOOST_TEST(row.at("ranks") == 3);
        BOOST_TEST(row.at("transport") == "shm");
        BOOST_TEST(row.at("algorithm") == "auto");
        BOOST_TEST(row.at("dtype") == "f32");
        BOOST_TEST(row.at("op").is_string());
        BOOST_TEST(row.at("wrong") == 0);
        BOOST_TEST(row.at("time_us").get<double>() > 0);
        BOOST_TEST(row.at("p99_us").get<double>() > 0);
        BOOST_TEST(row.contains("in_place"));
        for (const char* number : {"count", "bytes", "algbw", "busbw"})
          BOOST_TEST(row.at(number).is_number());
      }
      if (name != "barrier") BOOST_TEST(rows.back().at("bytes") == 30000);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_table_ends_with_a_verdict) {
  const outcome o = bench({"all_gather", "--transport", "tcp", "-b", "1K", "-e", "1K", "-n", "3"});
  BOOST_TEST_CONTEXT(o.output) {
    BOOST_TEST(o.code == 0);
    BOOST_TEST(o.says("# all_gather of f32, on 2 ranks over tcp"));
    BOOST_TEST(o.says("# wrong values: 0, OK"));
  }
}

BOOST_AUTO_TEST_CASE(types_operations_roots_and_algorithms) {
  const outcome o = bench({"reduce", "--dtype", "bf16", "--op", "max", "--root", "1", "--algo", "chain", "-b",
                           "64", "-e", "64", "-n", "2", "--format", "json"});
  BOOST_TEST_CONTEXT(o.output) {
    BOOST_TEST_REQUIRE(o.code == 0);
    const std::vector<json> rows = rows_of(o);
    BOOST_TEST_REQUIRE(rows.size() == 2U);  // apart, and in place
    BOOST_TEST(rows[0].at("dtype") == "bf16");
    BOOST_TEST(rows[0].at("op") == "max");
    BOOST_TEST(rows[0].at("algorithm") == "chain");
    BOOST_TEST(rows[0].at("count") == 32);
  }
}

BOOST_AUTO_TEST_CASE(every_algorithm_gets_its_costs) {
  const outcome o = bench({"tune", "--collectives", "all_gather", "--ranks", "3", "-b", "12", "-e", "6144",
                           "-f", "512", "-n", "2", "--repeats", "1", "-o", "/dev/stdout"});
  BOOST_TEST_CONTEXT(o.output) {
    BOOST_TEST_REQUIRE(o.code == 0);
    const json model = json::parse(o.output.substr(o.output.find('{')), nullptr, false);
    BOOST_TEST_REQUIRE(!model.is_discarded());
    BOOST_TEST(model.at("format") == 1);
    BOOST_TEST(model.at("ranks") == 3);
    const json& found = model.at("collectives").at("all_gather");
    for (const char* algorithm : {"ring", "direct", "recursive_doubling", "bruck"}) {
      const json& cost = found.at(algorithm);
      BOOST_TEST(cost.at("points").size() == 2U);
      BOOST_TEST(cost.at("alpha_us").get<double>() >= 0);
      BOOST_TEST(cost.at("beta_us_per_byte").get<double>() >= 0);
    }
  }
  BOOST_TEST(bench({"tune", "--collectives", "sendrecv"}).says("sendrecv not in"));
  const outcome unwritable =
      bench({"tune", "--collectives", "scan", "-e", "8", "-n", "1", "-o", "/no/such/folder/f"});
  BOOST_TEST(unwritable.code == 1);
  BOOST_TEST(unwritable.says("cannot be written"));
  BOOST_TEST(bench({"tune", "-b", "2"}).says("4 bytes upwards"));
}

/// Which peers this build has, as meson found them.
boost::test_tools::assertion_result has_peer(const char* name, const char* package) {
  const std::string built = variable("CHORALE_PEERS");
  boost::test_tools::assertion_result found{(" " + built + " ").find(std::string{" "} + name + " ") !=
                                            std::string::npos};
  found.message() << (built == "disabled" ? std::string{"peers are disabled in this build"}
                                          : std::string{package} + " is not installed");
  return found;
}
boost::test_tools::assertion_result has_openmpi(boost::unit_test::test_unit_id) {
  return has_peer("openmpi", "libopenmpi-dev");
}
boost::test_tools::assertion_result has_gloo(boost::unit_test::test_unit_id) {
  return has_peer("gloo", "libgloo-dev");
}

void every_collective_beside(const std::string& peer, const std::string& transport,
                             const std::vector<std::string>& absent) {
  for (const std::string& name : collectives) {
    const bool offered = std::ranges::find(absent, name) == absent.end();
    const outcome o = bench({name, "--ranks", "3", "--transport", transport, "--vs", peer, "-b", "3000", "-e",
                             "3000", "-n", "2", "-w", "1", "--repeats", "1", "--format", "markdown"});
    BOOST_TEST_CONTEXT(name << " beside " << peer << "\n" << o.output) {
      BOOST_TEST((o.code == 0) == offered);
      BOOST_TEST(o.says(offered ? "geometric mean" : "no peer is left"));
      BOOST_TEST(!o.says("wrong elements"));
    }
  }
}

BOOST_AUTO_TEST_CASE(open_mpi_beside_us_in_every_collective, *boost::unit_test::precondition(has_openmpi)) {
  every_collective_beside("openmpi", "shm", {});
}

BOOST_AUTO_TEST_CASE(gloo_beside_us_in_every_collective, *boost::unit_test::precondition(has_gloo)) {
  every_collective_beside("gloo", "tcp", {"scan", "exscan"});
}

BOOST_AUTO_TEST_CASE(rows_beside_a_peer_name_it, *boost::unit_test::precondition(has_gloo)) {
  const outcome o = bench({"all_reduce", "--transport", "tcp", "--vs", "gloo", "-b", "64", "-e", "64", "-n",
                           "2", "--repeats", "1", "--format", "json"});
  const std::string row = o.output.substr(0, o.output.find('\n'));
  const json parsed = json::parse(row, nullptr, false);
  BOOST_TEST_CONTEXT(o.output) {
    BOOST_TEST_REQUIRE(!parsed.is_discarded());
    BOOST_TEST(parsed.at("peer").get<std::string>().starts_with("gloo ("));
    BOOST_TEST(parsed.at("peer_time_us").get<double>() > 0);
    BOOST_TEST(parsed.at("ratio").get<double>() ==
               parsed.at("peer_time_us").get<double>() / parsed.at("time_us").get<double>());
    BOOST_TEST(parsed.at("peers").size() == 4U);
  }
}

BOOST_AUTO_TEST_CASE(a_peer_without_a_way_is_left_out_with_its_reason) {
  const outcome o = bench({"all_reduce", "--transport", "shm", "--vs", "gloo", "-n", "1"});
  BOOST_TEST_CONTEXT(o.output) {
    BOOST_TEST(o.code == 1);
    BOOST_TEST(o.says("left out: gloo"));
    BOOST_TEST(o.says("no peer is there to compare with"));
  }
}

BOOST_AUTO_TEST_CASE(wrong_arguments_are_explained) {
  const auto refused = [](const std::vector<std::string>& arguments, const char* with) {
    const outcome o = bench(arguments);
    BOOST_TEST_CONTEXT(o.output) {
      BOOST_TEST(o.code != 0);
      BOOST_TEST(o.says(with));
    }
  };
  refused({"all_reduces"}, "A subcommand is required");
  refused({"scan", "--algo", "ring"}, "ring is none of auto, recursive_doubling, chain");
  refused({"all_gather", "--op", "sum"}, "--op");
  refused({"all_reduce", "--dtype", "f128"}, "f128 not in");
  refused({"scan", "--op", "avg"}, "not defined");
  refused({"all_reduce", "-b", "2"}, "sizes run from one element (4 bytes)");
  refused({"all_reduce", "-b", "64", "-e", "32"}, "the end not below the beginning");
  refused({"broadcast", "--ranks", "2", "--root", "2"}, "2 is not below --ranks");
  refused({"scan", "--vs", "nccl"}, "nccl not in");
  refused({"all_gather", "--vs", "nccl"}, "only with --device cuda");
  refused({"all_reduce", "--vs", "gloo", "--dtype", "f64"}, "sums of f32");
  refused({"all_reduce", "--format", "markdown"}, "only with --vs");
  refused({"all_reduce", "--op", "bit_and", "-n", "1"}, "bit operations take integers");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
