#include "../bench/collectives.hpp"
#include "../bench/device_bench.hpp"
#include "../bench/host_bench.hpp"
#include "../bench/runtime.hpp"
#include "../bench/serve.hpp"
#include "bench_tune.hpp"
#include "bench_versus.hpp"
#include "commands.hpp"
#include "job.hpp"
#include <chorale/async/engine.hpp>
#include <chorale/collective/selection.hpp>
#include <chorale/transport/bootstrap/config.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>

namespace chorale::tools {
namespace {

constexpr const char* examples = R"(Examples:
  Two ranks on this host over shared memory, 8 bytes to 64 MiB:
      chorale bench all_reduce --ranks 2 -b 8 -e 64M -f 4
  Another collective over TCP, as JSON, one object a row:
      chorale bench all_gather --ranks 4 --transport tcp --format json
  An algorithm of one's choice, for another type and operation:
      chorale bench reduce_scatter --algo ring --dtype bf16 --op max
  Beside Open MPI and Gloo, each at its best setting, in turn:
      chorale bench all_reduce --ranks 4 --transport tcp --vs openmpi,gloo -b 8 -e 64M -f 8
  Two GPUs beside NCCL, as graph replays:
      chorale bench all_reduce --device cuda --ranks 2 --graph --vs nccl -b 8 -e 1G -f 8
  As a rank of a job that a launcher started:
      mpirun -n 4 chorale bench all_reduce -b 8 -e 16M -f 4 -c 1

Sizes are those of the whole vector; where ranks have shares, of all shares together, and the count is that of
one. Exit code: 0, 1 if a result was wrong, otherwise as `chorale run`.)";

struct given_options {
  bench::bench_options work;
  const bench::benched_collective* what = nullptr;
  int ranks = 2;
  std::string transport;
  std::string format = "table";
  std::string type = "f32";
  std::string op = "sum";
  int check = 1;
  std::string device = "host";
  std::vector<std::string> versus;
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
int spawn(int ranks, int argc, char** argv) {
  job_options job;
  job.program = "/proc/self/exe";
  for (int i = 1; i < argc; ++i) job.arguments.emplace_back(argv[i]);
  job.ranks = ranks;
  engine loop{engine_options{.backend = backend_kind::automatic, .spin = duration::zero()}};
  tools::job running{std::move(job)};
  return loop.run(running.run());
}

/// Whether a launcher has made this process a rank. For the transport that the ranks are to have.
bool is_rank(const std::string& transport) {
  const char* const wanted = transport == "tcp" ? "tcp" : "auto";
  if (!transport.empty() && ::setenv("CHORALE_TRANSPORT", wanted, 1) != 0)
    throw failure{error::from_os(errno, "setenv CHORALE_TRANSPORT")};
  auto config = bootstrap_config::from_environment();
  if (!config) throw failure{std::move(config).error()};
  return config->started_by != launcher::none;
}

int compare(const given_options& given) {
  versus_request request;
  request.options = given.work;
  request.what = {given.what, given.transport.empty() ? "shm" : given.transport, given.ranks};
  request.peers = given.versus;
  request.alternations = given.repeats;
  return run_versus(std::move(request));
}

int measure_on_gpu(const given_options& given) {
  engine loop;
  bench::device_bench_options on_gpu;
  on_gpu.common = given.work;
  on_gpu.graph = given.graph;
  on_gpu.versus_nccl = !given.versus.empty();
  on_gpu.repeats = given.repeats;
  return loop.run(bench::bench_on_device(*given.what, on_gpu));
}

int run(given_options given, int argc, char** argv) {
  try {
    const bool rank = is_rank(given.transport);
    if (given.device == "host" && !given.versus.empty()) {
      if (rank)
        throw failure{
            error{errc::invalid_argument, "--vs starts ranks and peers itself; run it without a launcher"}};
      return compare(given);
    }
    if (!rank) return spawn(given.ranks, argc, argv);
    if (given.device == "cuda") return measure_on_gpu(given);
    engine loop;
    return loop.run(bench::bench_collective(*given.what, given.work));
  } catch (const failure& f) {
    std::fprintf(stderr, "chorale bench: %s\n", f.what());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "chorale bench: %s\n",
                 error{errc::out_of_memory, "several buffers of the largest size per rank; lower -e"}
                     .message()
                     .c_str());
  }
  return 1;
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
  command.add_option("--ranks", given.ranks, "Processes to start when no launcher did")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      .add_option("--transport", given.transport,
                  "shm or tcp between ranks of one host (default: shm where possible)")
      ->check(CLI::IsMember({"shm", "tcp"}));
  command.add_option("--format", given.format, "table, json (one object a row), or, with --vs, markdown")
      ->check(CLI::IsMember({"table", "json", "markdown"}))
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

bool is_scan(const bench::benched_collective& what) noexcept {
  return what.kind == collective_kind::scan || what.kind == collective_kind::exscan;
}

void add_peers(CLI::App& command, given_options& given) {
  const bool on_gpus = !is_scan(*given.what);
  std::vector<std::string> peers{"openmpi", "gloo"};
  if (on_gpus) peers.emplace_back("nccl");
  command
      .add_option("--vs", given.versus,
                  std::string{"Measure peers in the same run: openmpi, gloo, or both with a comma"} +
                      (on_gpus ? "; with --device cuda: nccl" : ""))
      ->delimiter(',')
      ->check(CLI::IsMember(peers));
  command
      .add_option("--repeats", given.repeats, "Beside peers: samples of each side, in turn; medians count")
      ->check(CLI::Range(1, 1001))
      ->capture_default_str();
  if (!on_gpus) return;
  command.add_option("--device", given.device, "host memory, or cuda: GPU memory, one process per GPU")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  command.add_flag("--graph", given.graph, "With --device cuda: replay a CUDA graph of many calls");
}

/// Throws where a peer and what it is to be compared in do not go together.
void check_peers(const given_options& given) {
  const bool nccl = std::ranges::count(given.versus, "nccl") != 0;
  const bool others = nccl ? given.versus.size() > 1 : !given.versus.empty();
  if (given.device == "host" && (given.graph || nccl))
    throw CLI::ValidationError{"--graph/--vs nccl", "only with --device cuda"};
  if (given.device == "cuda" && !given.work.algorithm.empty())
    throw CLI::ValidationError{"--algo", "only for host memory; on GPUs sizes decide"};
  if (given.device == "cuda" && others) throw CLI::ValidationError{"--vs", "on GPUs the peer is nccl"};
  if (others && (given.work.type != dtype::f32 || given.work.op != reduction::sum || given.work.root != 0))
    throw CLI::ValidationError{"--vs", "peers are compared in sums of f32, with root 0"};
  if (given.work.format == bench::report_format::markdown && !others)
    throw CLI::ValidationError{"--format markdown", "only with --vs openmpi or gloo"};
}

/// After parsing: what single options cannot know.
void settle(given_options& given) {
  auto& work = given.work;
  work.type = names_up_to(dtype::f8e5m2).at(given.type);
  work.op = reductions().at(given.op);
  work.check = given.check != 0;
  work.required_transport = given.transport;
  work.format = given.format == "json"       ? bench::report_format::json
                : given.format == "markdown" ? bench::report_format::markdown
                                             : bench::report_format::table;
  check_peers(given);
  if (is_scan(*given.what) && work.op == reduction::avg)
    throw CLI::ValidationError{"--op avg", "an average over a growing number of ranks is not defined"};
  if (work.begin < size_of(work.type) || work.end < work.begin)
    throw CLI::ValidationError{"-b/-e", "sizes run from one element (" + std::to_string(size_of(work.type)) +
                                            " bytes) upwards, the end not below the beginning"};
  if (work.root >= given.ranks)
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
  add_peers(*command, *given);
  command->footer(examples);
  command->callback([given, &exit_code, argc, argv] {
    settle(*given);
    exit_code = run(*given, argc, argv);
  });
}

/// Not listed: `--vs` starts it.
void add_serve(CLI::App& bench, int& exit_code, int argc, char** argv) {
  struct serve_options {
    int ranks = 2;
    std::string transport;
    std::string algorithms;
  };
  auto given = std::make_shared<serve_options>();
  CLI::App* const command = bench.add_subcommand("serve", "")->group("");
  command->add_option("--ranks", given->ranks)->check(CLI::Range(1, 4096));
  command->add_option("--transport", given->transport)->check(CLI::IsMember({"shm", "tcp"}));
  command->add_option("--algo", given->algorithms);
  command->callback([given, &exit_code, argc, argv] {
    try {
      if (!is_rank(given->transport)) {
        exit_code = spawn(given->ranks, argc, argv);
        return;
      }
      engine loop;
      exit_code = loop.run(bench::serve(given->algorithms));
    } catch (const failure& f) {
      std::fprintf(stderr, "chorale bench: %s\n", f.what());
      exit_code = 1;
    }
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
  add_serve(*bench, exit_code, argc, argv);
  add_tune(*bench, exit_code);
  add_runtime(*bench, exit_code);
}

}  // namespace chorale::tools
