#include "commands.hpp"
#include "job.hpp"
#include <chorale/async/engine.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>

namespace chorale::tools {
namespace {

constexpr const char* examples = R"(Examples:
  Four ranks on this host, each line of output marked with its rank:
      chorale run -n 4 --tag-output -- ./my_program --epochs 3
  The example that trains on digits, by name:
      chorale run -n 4 -- digits
  Survive the loss of ranks (the program calls reset()):
      chorale run -n 4 --on-loss continue -- ./my_program
  Two hosts, four ranks on each; the same command on both but for --node:
      export CHORALE_SECRET=$(openssl rand -hex 32)          # the same on both
      chorale run -n 4 --nodes 2 --node 0 --root 10.0.0.1:7000 -- ./my_program
      chorale run -n 4 --nodes 2 --node 1 --root 10.0.0.1:7000 -- ./my_program

What the ranks get: CHORALE_RANK, CHORALE_SIZE, CHORALE_LOCAL_RANK, CHORALE_LOCAL_SIZE, CHORALE_ROOT,
CHORALE_SECRET, CHORALE_RENDEZVOUS. Rank 0 keeps stdin; the others read /dev/null.

Exit code: that of the first rank that failed (128 + signal if it was killed), 0 if none did; 124 after --timeout;
126 if the ranks could not be started; 2 for wrong options.)";

struct run_options {
  int ranks = 0;
  int nodes = 1;
  int node = 0;
  std::string root;
  std::vector<std::string> variables;
  double timeout_seconds = 0;
  double grace_seconds = 0.4;
  std::string on_loss = "abort";
  std::string bind = "none";
  bool tag_output = false;
  std::vector<std::string> command;
};

result<duration> seconds_from(const char* name, duration otherwise) {
  const char* const text = std::getenv(name);
  if (!text) return otherwise;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < 1 || value > 86400)
    return error{errc::invalid_argument,
                 std::string{name} + "=" + text + ": write a whole number of seconds, 1 to 86400"};
  return duration{std::chrono::seconds{value}};
}

duration to_duration(double seconds) {
  return std::chrono::duration_cast<duration>(std::chrono::duration<double>{seconds});
}

result<job_options> read(const run_options& given) {
  job_options job;
  auto program = find_program(given.command.front());
  if (!program) return std::move(program).error();
  job.program = *std::move(program);
  job.arguments.assign(given.command.begin() + 1, given.command.end());
  for (const std::string& v : given.variables) {
    if (v.find('=') == std::string::npos || v.front() == '=')
      return error{errc::invalid_argument, "--env " + v + ": write NAME=value"};
    job.variables.push_back(v);
  }
  job.ranks = given.ranks;
  job.nodes = given.nodes;
  job.node = given.node;
  if (given.node >= given.nodes)
    return error{errc::invalid_argument, "--node " + std::to_string(given.node) +
                                             " does not exist: nodes count from 0 to " +
                                             std::to_string(given.nodes - 1)};
  if (const char* secret = std::getenv("CHORALE_SECRET")) job.secret = secret;
  if (!given.root.empty()) {
    auto root = address::parse(given.root);
    if (!root) return error{errc::invalid_argument, "--root: " + root.error().detail()};
    job.root = *root;
  }
  if (given.nodes > 1 && (!job.root || job.secret.empty()))
    return error{
        errc::invalid_argument,
        "several nodes need --root address:port (of node 0, free) and the same CHORALE_SECRET on each"};
  const auto patience = seconds_from("CHORALE_BOOTSTRAP_TIMEOUT", job.bootstrap_timeout);
  if (!patience) return patience.error();
  job.bootstrap_timeout = *patience;
  const auto grace = seconds_from("CHORALE_RESET_GRACE", job.reset_grace);
  if (!grace) return grace.error();
  job.reset_grace = *grace;
  job.tag_output = given.tag_output;
  job.bind_cores = given.bind == "core";
  job.on_loss = given.on_loss == "continue" ? loss_policy::carry_on : loss_policy::abort;
  job.grace = to_duration(given.grace_seconds);
  if (given.timeout_seconds > 0) job.time_limit = to_duration(given.timeout_seconds);
  return job;
}

int run(const run_options& given) {
  try {
    auto options = read(given);
    if (!options) {
      std::fprintf(stderr, "chorale run: %s\n", options.error().message().c_str());
      return exit_bad_usage;
    }
    engine loop{engine_options{.backend = backend_kind::automatic, .spin = duration::zero()}};
    job work{*std::move(options)};
    return loop.run(work.run());
  } catch (const failure& f) {
    std::fprintf(stderr, "chorale run: %s\n", f.what());
    return exit_not_started;
  }
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  auto given = std::make_shared<run_options>();
  CLI::App* const command = app.add_subcommand("run", "Start the ranks of a job and watch over them");
  command->add_option("-n,--ranks", given->ranks, "Ranks to start on this host")
      ->required()
      ->check(CLI::Range(1, 65536));
  command
      ->add_option("--env", given->variables,
                   "NAME=value for the ranks, on top of this environment; repeatable")
      ->allow_extra_args(false);
  command
      ->add_option("--timeout", given->timeout_seconds, "End the job after so many seconds (exit code 124)")
      ->check(CLI::Range(0.001, 1e9));
  command
      ->add_option("--bind", given->bind,
                   "core: give each rank its own share of the CPUs; none: leave that to the kernel")
      ->check(CLI::IsMember({"core", "none"}))
      ->capture_default_str();
  command->add_flag("--tag-output", given->tag_output, "Begin every line of output with the rank: [2] …");
  command
      ->add_option("--on-loss", given->on_loss,
                   "abort: end the others when a rank fails; continue: let them go on")
      ->check(CLI::IsMember({"abort", "continue"}))
      ->capture_default_str();
  command
      ->add_option("--grace", given->grace_seconds,
                   "Seconds that the others get to end by themselves after a loss")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--nodes", given->nodes, "Hosts of the job, each running this command")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--node", given->node, "Which of them this is, from 0")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--root", given->root, "address:port where node 0 listens; with several nodes");
  command->add_option("command", given->command, "The program and its arguments, after --")->required();
  command->positionals_at_end();
  command->footer(examples);
  command->callback([given, &exit_code] { exit_code = run(*given); });
}

}  // namespace chorale::tools
