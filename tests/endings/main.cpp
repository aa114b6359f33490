// endings: what is promised about failures, tried with real processes that really die, stop, leave or
// disagree, at moments that a seed chooses. Prints medians and worst cases; exits with 1 if anything was not
// as promised, with 77 if nothing could be tried.
//
//   endings --kind kill --transport tcp --runs 500 --seed 7
#include "scenario.hpp"

#include <CLI/CLI.hpp>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

using namespace endings;

namespace {

struct options {
  settings with;
  std::vector<std::string> kinds;
  std::vector<std::string> transports{"shm", "tcp", "net"};
  std::uint64_t runs = 50;
  std::uint64_t seed = 1;
  int at_once = 25;
};

struct total {
  std::mutex mutex;
  std::vector<double> waits_ms, resets_ms;
  std::size_t failed = 0;
};

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Those that wait for time-outs do nothing meanwhile: they wait together, and are under load as promised.
bool mostly_waits(kind k) { return k == kind::stop || k == kind::busy || k == kind::link; }
/// Two hosts are made for every run. What differs there is the link; the rest is few unless asked for by
/// name.
std::uint64_t runs_of(kind k, const std::string& transport, const options& o) {
  const bool few = transport == "net" && k != kind::link && o.kinds.empty();
  return few ? std::min<std::uint64_t>(o.runs, 10) : o.runs;
}

void try_all(const options& o, kind what, const std::string& transport, total& sum) {
  const std::uint64_t runs = runs_of(what, transport, o);
  std::atomic<std::uint64_t> next{0};
  auto work = [&] {
    for (std::uint64_t i = next++; i < runs; i = next++) {
      const std::uint64_t seed = o.seed + i;
      const outcome got = run_once(o.with, what, transport, seed);
      const std::lock_guard lock{sum.mutex};
      sum.waits_ms.insert(sum.waits_ms.end(), got.waits_ms.begin(), got.waits_ms.end());
      sum.resets_ms.insert(sum.resets_ms.end(), got.resets_ms.begin(), got.resets_ms.end());
      if (got.complaints.empty()) continue;
      ++sum.failed;
      std::printf("FAILED: --kind %s --transport %s --runs 1 --seed %llu\n", name_of(what), transport.c_str(),
                  static_cast<unsigned long long>(seed));
      for (const std::string& c : got.complaints) std::printf("  %s\n", c.c_str());
      std::fflush(stdout);
    }
  };
  std::vector<std::thread> workers;
  const int at_once = mostly_waits(what) ? o.at_once : 1;
  for (int i = 0; i < at_once; ++i) workers.emplace_back(work);
  for (std::thread& w : workers) w.join();
}

/// False when something was not as promised.
bool report(const options& o, kind what, const std::string& transport) {
  total sum;
  const std::int64_t started = now_ns();
  try_all(o, what, transport, sum);
  const double middle = median(sum.waits_ms);
  const double worst = sum.waits_ms.empty() ? 0 : sum.waits_ms.back();
  const double reset = median(sum.resets_ms);
  std::printf(
      "%-8s %-3s %4llu runs in %5.1f s, %zu failed; awaits end: median %.2f ms, worst %.2f ms; reset: "
      "median %.1f ms, worst %.1f ms\n",
      name_of(what), transport.c_str(), static_cast<unsigned long long>(runs_of(what, transport, o)),
      static_cast<double>(now_ns() - started) / 1e9, sum.failed, middle, worst, reset,
      sum.resets_ms.empty() ? 0 : sum.resets_ms.back());
  std::fflush(stdout);
  const limits allowed = limits_for(what);
  const bool in_time = middle <= allowed.median_ms && worst <= allowed.worst_ms;
  if (!in_time)
    std::printf("TOO SLOW: at most %.0f ms in the median and %.0f ms in the worst case are promised\n",
                allowed.median_ms, allowed.worst_ms);
  return sum.failed == 0 && in_time;
}

int run_all(const options& o) {
  const bool two_hosts_possible = two_hosts::possible();
  bool tried = false;
  bool good = true;
  for (std::size_t k = 0; k < kind_names.size(); ++k) {
    const auto what = static_cast<kind>(k);
    if (!o.kinds.empty() && std::ranges::find(o.kinds, kind_names[k]) == o.kinds.end()) continue;
    if (what == kind::link && !two_hosts_possible) {
      std::printf("link     skipped: network namespaces need root and the ip command\n");
      continue;
    }
    for (const std::string& transport : o.transports) {
      if (transport == "net" ? !two_hosts_possible || what == kind::abort : what == kind::link) continue;
      tried = true;
      good = report(o, what, transport) && good;
    }
  }
  return !good ? 1 : tried ? 0 : 77;
}

}  // namespace

int main(int argc, char** argv) {
  options o;
  CLI::App app{"What is promised about failures, tried with real processes"};
  const auto from_environment = [](const char* name) { return std::getenv(name) ? std::getenv(name) : ""; };
  o.with.tool = from_environment("CHORALE_TOOL");
  o.with.rank_program = from_environment("CHORALE_ENDINGS_RANK");
  app.add_option("--kind", o.kinds, "Which endings; all if not given")
      ->check(CLI::IsMember(std::vector<std::string>(kind_names.begin(), kind_names.end())));
  app.add_option("--transport", o.transports, "shm, tcp, net (two hosts, as root); all if not given")
      ->check(CLI::IsMember({"shm", "tcp", "net"}));
  app.add_option("--runs", o.runs, "Of each kind and transport")
      ->capture_default_str()
      ->envname("CHORALE_ENDINGS_RUNS");
  app.add_option("--seed", o.seed, "Of the first run")->capture_default_str();
  app.add_option("--operations", o.with.operations, "After the reset")->capture_default_str();
  app.add_option("--resident", o.with.resident, "Bytes that the victim keeps in memory")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--at-once", o.at_once, "Runs side by side of endings that wait for time-outs")
      ->capture_default_str();
  app.add_option("--tool", o.with.tool, "The chorale command")->capture_default_str();
  app.add_option("--rank-program", o.with.rank_program, "endings_rank")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (o.with.tool.empty() || o.with.rank_program.empty()) {
    std::fprintf(stderr, "endings: name --tool and --rank-program, or run this through meson test\n");
    return 2;
  }
  o.with.tool = std::filesystem::absolute(o.with.tool);
  o.with.rank_program = std::filesystem::absolute(o.with.rank_program);

  // Core dumps are wanted: they are what makes a death slow. They go to a folder that goes with us.
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  ::setrlimit(RLIMIT_CORE, &unlimited);
  std::string folder = (std::filesystem::temp_directory_path() / "endings-XXXXXX").string();
  if (!::mkdtemp(folder.data()) || ::chdir(folder.c_str()) != 0) return 2;
  const int code = run_all(o);
  std::filesystem::remove_all(folder);
  return code;
}
