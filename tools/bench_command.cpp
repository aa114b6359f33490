#include "../bench/all_reduce.hpp"
#include "../bench/device_all_reduce.hpp"
#include "../bench/runtime.hpp"
#include "commands.hpp"
#include "job.hpp"
#include <chorale/async/engine.hpp>
#include <chorale/transport/bootstrap/config.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace chorale::tools {
namespace {

constexpr const char* examples = R"(Examples:
  Two ranks on this host over shared memory, 8 bytes to 64 MiB:
      chorale bench all_reduce --ranks 2 -b 8 -e 64M -f 4
  The same over TCP, as JSON, one object a row:
      chorale bench all_reduce --ranks 2 --transport tcp --format json
  Two GPUs beside NCCL, as graph replays:
      chorale bench all_reduce --device cuda --ranks 2 --graph --vs nccl -b 8 -e 1G -f 8
  As a rank of a job that a launcher started:
      mpirun -n 4 chorale bench all_reduce -b 8 -e 16M -f 4 -c 1

Exit code: 0, 1 if a result was wrong, otherwise as `chorale run`.)";

struct given_options {
  bench::all_reduce_options work;
  int ranks = 0;
  std::string transport;
  std::string format = "table";
  int check = 1;
  std::string device = "host";
  std::string versus;
  bool graph = false;
  int repeats = 7;
};

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
    if (given.device == "host") return loop.run(bench::bench_all_reduce(given.work));
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

void add_all_reduce(CLI::App& bench, int& exit_code, int argc, char** argv) {
  auto given = std::make_shared<given_options>();
  CLI::App* const command = bench.add_subcommand("all_reduce", "Sum of floats over all ranks, host memory");
  const CLI::AsSizeValue size{false};
  command->add_option("-b,--minbytes", given->work.begin, "Smallest size, e.g. 8, 4K, 1M")
      ->transform(size)
      ->capture_default_str();
  command->add_option("-e,--maxbytes", given->work.end, "Largest size; always measured")
      ->transform(size)
      ->capture_default_str();
  command->add_option("-i,--stepbytes", given->work.step, "Bytes added from one size to the next; 0: use -f")
      ->transform(size);
  command->add_option("-f,--stepfactor", given->work.factor, "Factor from one size to the next")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("-n,--iters", given->work.iterations,
                   "Timed calls per size; 0: enough for a quarter of a second")
      ->check(CLI::Range(0, 100000000))
      ->capture_default_str();
  command->add_option("-w,--warmup_iters", given->work.warmup, "Calls before the timed ones")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command->add_option("-c,--check", given->check, "1: check every element of one call per size; 0: do not")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  command->add_option("--ranks", given->ranks, "Processes to start when no launcher did (default 2)")
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--transport", given->transport,
                   "shm or tcp between ranks of one host (default: shm where possible)")
      ->check(CLI::IsMember({"shm", "tcp"}));
  command->add_option("--algo", given->work.algorithm, "Force an algorithm")
      ->check(CLI::IsMember({"auto", "tiny", "recursive_doubling", "slice_owner", "ring"}));
  command->add_option("--format", given->format, "table, or json: one object a row")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  command->add_option("--device", given->device, "host memory, or cuda: GPU memory, one process per GPU")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  command->add_option("--vs", given->versus, "Measure a peer in the same run; with --device cuda: nccl")
      ->check(CLI::IsMember({"nccl"}));
  command->add_flag("--graph", given->graph, "With --device cuda: replay a CUDA graph of many calls");
  command
      ->add_option("--repeats", given->repeats, "With --device cuda: interleaved repeats, medians are shown")
      ->check(CLI::Range(1, 1001))
      ->capture_default_str();
  command->footer(examples);
  command->callback([given, &exit_code, argc, argv] {
    if (given->device == "host" && (given->graph || !given->versus.empty()))
      throw CLI::ValidationError{"--graph/--vs", "only with --device cuda in this version"};
    auto& work = given->work;
    if (work.begin < sizeof(float) || work.end < work.begin)
      throw CLI::ValidationError{"-b/-e",
                                 "sizes run from at least 4 bytes upwards, the end not below the beginning"};
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
  add_all_reduce(*bench, exit_code, argc, argv);
  add_runtime(*bench, exit_code);
}

}  // namespace chorale::tools
