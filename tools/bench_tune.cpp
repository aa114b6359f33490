#include "bench_tune.hpp"

#include "../bench/versus/tuning.hpp"
#include <chorale/collective/selection.hpp>

#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

namespace chorale::tools {
namespace {

struct tune_arguments {
  bench::versus::tuning_options work;
  std::vector<std::string> collectives;
  std::string output;
};

std::vector<std::string> tunable() {
  std::vector<std::string> names;
  for (const bench::benched_collective& what : bench::benched_collectives())
    if (!algorithms_for(what.kind).empty() && what.kind != collective_kind::barrier)
      names.emplace_back(what.name);
  return names;
}

int run(tune_arguments given) {
  ::signal(SIGPIPE, SIG_IGN);
  std::error_code failed;
  given.work.chorale_program = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  if (given.collectives.empty()) given.collectives = tunable();
  for (const std::string& name : given.collectives)
    given.work.collectives.push_back(bench::find_collective(name));
  const auto model = bench::versus::tune(given.work);
  if (!model) {
    std::fprintf(stderr, "chorale bench tune: %s\n", model.error().detail().c_str());
    return 1;
  }
  if (given.output.empty()) {
    std::fputs(model->c_str(), stdout);
    return 0;
  }
  std::ofstream file{given.output};
  file << *model << std::flush;
  if (file) return 0;
  std::fprintf(stderr, "chorale bench tune: %s cannot be written; name a file in a folder that can\n",
               given.output.c_str());
  return 1;
}

}  // namespace

void add_tune(CLI::App& bench, int& exit_code) {
  auto given = std::make_shared<tune_arguments>();
  given->work.common.factor = 8;
  CLI::App* const command =
      bench.add_subcommand("tune", "Fit what every algorithm costs here: time = alpha + beta x bytes");
  const CLI::AsSizeValue size{false};
  command->add_option("--collectives", given->collectives, "Which, with commas (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(tunable()));
  command->add_option("--ranks", given->work.ranks, "Processes to start")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str();
  command->add_option("--transport", given->work.transport, "shm or tcp between ranks of one host")
      ->check(CLI::IsMember({"shm", "tcp"}))
      ->capture_default_str();
  command->add_option("-o,--output", given->output, "File for the JSON (default: stdout)");
  auto& sizes = given->work.common;
  command->add_option("-b,--minbytes", sizes.begin, "Smallest size")->transform(size)->capture_default_str();
  command->add_option("-e,--maxbytes", sizes.end, "Largest size")->transform(size)->capture_default_str();
  command->add_option("-f,--stepfactor", sizes.factor, "Factor from one size to the next")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("-n,--iters", sizes.iterations, "Timed calls per sample; 0: enough for 40 ms")
      ->check(CLI::Range(0, 100000000))
      ->capture_default_str();
  command->add_option("--repeats", given->work.samples, "Samples per size; medians count")
      ->check(CLI::Range(1, 1001))
      ->capture_default_str();
  command->callback([given, &exit_code] {
    if (given->work.common.begin < 4 || given->work.common.end < given->work.common.begin)
      throw CLI::ValidationError{"-b/-e", "sizes run from 4 bytes upwards, the end not below the beginning"};
    exit_code = run(*given);
  });
}

}  // namespace chorale::tools
