#include "../bench/collectives.hpp"
#include "../bench/device_all_reduce.hpp"
#include "../bench/host_bench.hpp"
#include "../bench/runtime.hpp"
#include "commands.hpp"
#include "job.hpp"
#include <chorale/async/engine.hpp>
#include <chorale/collective/selection.hpp>
#include <chorale/transport/bootstrap/config.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

namespace chorale::tools {
namespace {

constexpr const char* examples = R"(Examples:
  Two ranks on this host over shared memory, 8 bytes to 64 MiB:
      chorale bench all_reduce --ranks 2 -b 8 -e 64M -f 4
  Another collective over TCP, as JSON, one object a row:
      chorale bench all_gather --ranks 4 --transport tcp --format json
  An algorithm of one's choice, for another type and operation:
      chorale bench reduce_scatter --algo ring --dtype bf16 --op max
  Two GPUs beside NCCL, as graph replays:
      chorale bench all_reduce --device cuda --ranks 2 --graph --vs nccl -b 8 -e 1G -f 8
  As a rank of a job that a launcher started:
      mpirun -n 4 chorale bench all_reduce -b 8 -e 16M -f 4 -c 1

Sizes are those of the whole vector; where ranks have shares, of all shares together, and the count is that of
one. Exit code: 0, 1 if a result was wrong, otherwise as `chorale run`.)";

struct given_options {
  bench::bench_options work;
  const bench::benched_collective* what = nullptr;
  int ranks = 0;
  std::string transport;
  std::string format = "table";
  std::string type = "f32";
  std::string op = "sum";
  int check = 1;
  std::string device = "host";
  std::string versus;
  bool graph = false;
  int repeats = 7;
};

/// Names from the first value after `none` to `last`.
template <class Enum>
std::map<std::string, Enum> names_up_to(Enum last) {
  std::map<std::string, Enum> names;
  for (int i = 1; i <= static_cast<int>(last); ++i)
    names.emplace(name_of(static_cast<Enum>(i)), static_cast<Enum>(i));
  return names;
}

std::map<std::string, reduction> reductions() {
  auto names = names_up_to(reduction::bit_xor);
  names.erase(
      std::string{name_of(reduction::premul_sum)});  // each rank's own factor: nothing to measure apart
  return names;
}

/// Starts this very command once per rank.
int spawn(const given_options& given, int argc, char** argv) {
  job_options job;
  job.program = "/proc/self/exe";
  for (int i = 1; i < argc; ++i) job.arguments.emplace_back(argv[i]);
  job.ranks = given.ranks == 0 ? 2 : given.ranks;
  engine loop{engine_options{.backend = backend_kind::automatic, .spin = duration::zero()}};
  tools::job running{std::move(job)};
  return loop.run(running.run());
}

int run(given_options given, int argc, char** argv) {
  try {
    given.work.check = given.check != 0;
    given.work.format = given.format == "json" ? bench::report_format::json : bench::report_format::table;
    given.work.required_transport = given.transport;
    const char* const wanted = given.transport == "tcp" ? "tcp" : "auto";
    if (!given.transport.empty() && ::setenv("CHORALE_TRANSPORT", wanted, 1) != 0)
      throw failure{error::from_os(errno, "setenv CHORALE_TRANSPORT")};
    auto config = bootstrap_config::from_environment();
    if (!config) throw failure{std::move(config).error()};
    if (config->started_by == launcher::none) return spawn(given, argc, argv);
    engine loop;
    if (given.device == "host") return loop.run(bench::bench_collective(*given.what, given.work));
    bench::device_all_reduce_options on_gpu;
    on_gpu.common = given.work;
    on_gpu.graph = given.graph;
    on_gpu.versus_nccl = given.versus == "nccl";
    on_gpu.repeats = given.repeats;
    return loop.run(bench::bench_device_all_reduce(on_gpu));
  } catch (const failure& f) {
    std::fprintf(stderr, "chorale bench: %s\n", f.what());
    return 1;
  }
}

void add_calls(CLI::App& command, given_options& given) {
  command
      .add_option("-n,--iters", given.work.iterations,
                  "Timed calls per size; 0: enough for a quarter of a second")
      ->check(CLI::Range(0, 100000000))
      ->capture_default_str();
  command.add_option("-w,--warmup_iters", given.work.warmup, "Calls before the timed ones")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command.add_option("--ranks", given.ranks, "Processes to start when no launcher did (default 2)")
      ->check(CLI::Range(1, 4096));
  command
      .add_option("--transport", given.transport,
                  "shm or tcp between ranks of one host (default: shm where possible)")
      ->check(CLI::IsMember({"shm", "tcp"}));
  command.add_option("--format", given.format, "table, or json: one object a row")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
}

void add_sizes(CLI::App& command, given_options& given) {
  const CLI::AsSizeValue size{false};
  command.add_option("-b,--minbytes", given.work.begin, "Smallest size, e.g. 8, 4K, 1M")
      ->transform(size)
      ->capture_default_str();
  command.add_option("-e,--maxbytes", given.work.end, "Largest size; always measured")
      ->transform(size)
      ->capture_default_str();
  command.add_option("-i,--stepbytes", given.work.step, "Bytes added from one size to the next; 0: use -f")
      ->transform(size);
  command.add_option("-f,--stepfactor", given.work.factor, "Factor from one size to the next")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command.add_option("-c,--check", given.check, "1: check every element of one call per size; 0: do not")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  command.add_option("--dtype", given.type, "Type of the elements")
      ->check(CLI::IsMember(names_up_to(dtype::f8e5m2)))
      ->capture_default_str();
}

/// Of the call itself: not every collective has all of these.
void add_choices(CLI::App& command, given_options& given) {
  const collective_kind kind = given.what->kind;
  if (reduces(kind))
    command.add_option("--op", given.op, "How elements are combined")
        ->check(CLI::IsMember(reductions()))
        ->capture_default_str();
  if (has_root(kind))
    command.add_option("--root", given.work.root, "The rank that has, or gets, the whole")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
  const collective_kind served = kind == collective_kind::barrier ? collective_kind::all_reduce : kind;
  const std::string algorithms = algorithms_for(served);
  if (algorithms.empty()) return;
  const auto fits = [served, algorithms](const std::string& name) {
    const auto parsed = parse_algorithm(name);
    return parsed && serves(*parsed, served) ? std::string{} : name + " is none of auto, " + algorithms;
  };
  command.add_option("--algo", given.work.algorithm, "Force an algorithm: auto, " + algorithms)->check(fits);
}

void add_devices(CLI::App& command, given_options& given) {
  command.add_option("--device", given.device, "host memory, or cuda: GPU memory, one process per GPU")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  command.add_option("--vs", given.versus, "Measure a peer in the same run; with --device cuda: nccl")
      ->check(CLI::IsMember({"nccl"}));
  command.add_flag("--graph", given.graph, "With --device cuda: replay a CUDA graph of many calls");
  command
      .add_option("--repeats", given.repeats, "With --device cuda: interleaved repeats, medians are shown")
      ->check(CLI::Range(1, 1001))
      ->capture_default_str();
}

/// After parsing: what single options cannot know.
void settle(given_options& given) {
  if (given.device == "host" && (given.graph || !given.versus.empty()))
    throw CLI::ValidationError{"--graph/--vs", "only with --device cuda in this version"};
  auto& work = given.work;
  work.type = names_up_to(dtype::f8e5m2).at(given.type);
  work.op = reductions().at(given.op);
  if (given.device == "cuda" && (work.type != dtype::f32 || work.op != reduction::sum))
    throw CLI::ValidationError{"--device cuda", "sums of f32 are what runs on GPUs in this version"};
  const bool scans = given.what->kind == collective_kind::scan || given.what->kind == collective_kind::exscan;
  if (scans && work.op == reduction::avg)
    throw CLI::ValidationError{"--op avg", "an average over a growing number of ranks is not defined"};
  if (work.begin < size_of(work.type) || work.end < work.begin)
    throw CLI::ValidationError{"-b/-e", "sizes run from one element (" + std::to_string(size_of(work.type)) +
                                            " bytes) upwards, the end not below the beginning"};
  if (given.ranks != 0 && work.root >= given.ranks)
    throw CLI::ValidationError{"--root", std::to_string(work.root) + " is not below --ranks"};
}

void add_collective(CLI::App& bench, const bench::benched_collective& what, int& exit_code, int argc,
                    char** argv) {
  auto given = std::make_shared<given_options>();
  given->what = &what;
  CLI::App* const command = bench.add_subcommand(std::string{what.name}, std::string{what.summary});
  add_calls(*command, *given);
  add_sizes(*command, *given);
  add_choices(*command, *given);
  if (what.kind == collective_kind::all_reduce) add_devices(*command, *given);
  command->footer(examples);
  command->callback([given, &exit_code, argc, argv] {
    settle(*given);
    exit_code = run(*given, argc, argv);
  });
}

void add_runtime(CLI::App& bench, int& exit_code) {
  auto given = std::make_shared<bench::runtime_bench_options>();
  CLI::App* const command =
      bench.add_subcommand("runtime", "What a coroutine and a turn of the engine cost, beside Asio's");
  command->add_option("--iterations", given->iterations, "Coroutines per repeat")
      ->check(CLI::Range(1000, 100000000))
      ->capture_default_str();
  command->add_option("--repeats", given->repeats, "Interleaved repeats; medians are shown")
      ->check(CLI::Range(1, 1001))
      ->capture_default_str();
  command->callback([given, &exit_code] { exit_code = bench::bench_runtime(*given); });
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code, int argc, char** argv) {
  CLI::App* const bench = app.add_subcommand("bench", "Measure, with results checked");
  bench->require_subcommand(1);
  for (const bench::benched_collective& what : bench::benched_collectives())
    add_collective(*bench, what, exit_code, argc, argv);
  add_runtime(*bench, exit_code);
}

}  // namespace chorale::tools
