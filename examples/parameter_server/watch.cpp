#include "watch.hpp"

#include "client.hpp"
#include "digits/mlp.hpp"
#include "digits/trainer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace parameter_server {
namespace {

using steady = std::chrono::steady_clock;

/// On a terminal one line that is rewritten; elsewhere one line after the other.
void show(std::uint64_t version, std::uint64_t versions, digits::score reached) {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const std::string line =
      fmt::format("version {:>{}}/{}  test loss {:.4f}  accuracy {:5.1f} %", version,
                  fmt::formatted_size("{}", versions), versions, reached.loss, 100 * reached.accuracy);
  fmt::print("{}{}{}", terminal ? "\r" : "", line, terminal && version < versions ? "" : "\n");
  std::fflush(stdout);
}

chorale::task<std::string> table(servers& job) {
  std::string text = fmt::format("\n{:>6}  {:>6}  {:>8}  {:>8}  {:>10}  {:>6}\n", "server", "worker",
                                 "sessions", "applied", "sent again", "late");
  for (std::size_t i = 0; i < job.all().size(); ++i) {
    chorale::task<std::vector<worker_record>> asking = job.statistics(i);
    const std::vector<worker_record> records = co_await std::move(asking);
    for (const worker_record& r : records)
      text += fmt::format("{:>6}  {:>6}  {:>8}  {:>8}  {:>10}  {:>6}\n", i, r.worker, r.sessions, r.applied,
                          r.again, r.late);
  }
  text +=
      "sessions    how often the worker joined\n"
      "applied     pushes that are in the parameters\n"
      "sent again  repetitions of those, not applied twice\n"
      "late        pushes for a version that had closed without them\n\n";
  co_return text;
}

}  // namespace

chorale::task<> watch(watch_options options, const digits::dataset& test, std::vector<std::size_t> widths) {
  chorale::task<servers> finding = servers::find(options.servers, options.secret, "watcher");
  servers job = co_await std::move(finding);
  digits::mlp network{std::move(widths), 0};
  const auto from = steady::now();
  co_await job.pull(network.parameters(), servers::which::current);
  const std::uint64_t versions = job.all()[0].versions;
  digits::score reached;
  std::uint64_t shown = 0;
  while (!job.over() && !options.once) {
    co_await job.pull(network.parameters(), servers::which::newer);
    const std::uint64_t version = job.all()[0].version;
    if (version - shown < std::max<std::uint64_t>(1, versions / options.steps) || version == versions)
      continue;
    shown = version;
    reached = digits::evaluate(network, test);
    show(version, versions, reached);
  }
  co_await job.pull(network.parameters(), servers::which::current);
  reached = digits::evaluate(network, test);
  if (!options.once) show(job.all()[0].version, versions, reached);
  chorale::task<std::string> making = table(job);
  std::string text = co_await std::move(making);
  text += fmt::format("versions       {}\n", job.all()[0].version);
  text += fmt::format("test accuracy  {:.1f} % ({} of {})\n", 100 * reached.accuracy,
                      std::lround(reached.accuracy * static_cast<double>(test.size())), test.size());
  text += fmt::format("test loss      {:.4f}\n", reached.loss);
  text +=
      fmt::format("wall time      {:.2f} s\n", std::chrono::duration<double>(steady::now() - from).count());
  fmt::print("{}", text);
  std::fflush(stdout);
  if (options.stop) co_await job.stop();
  co_await job.leave();
}

}  // namespace parameter_server
