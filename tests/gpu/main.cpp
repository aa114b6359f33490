// GPU tests: one process per GPU, started by this one. `gpu_test [SCENARIO...] [--small]`; without names,
// all.
//
// Exit code 0: all held; 1: something failed; 77: fewer than two GPUs here, nothing was tested.
#include "device.hpp"
#include "rank_processes.hpp"
#include "scenarios.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>

using namespace chorale::gpu_test;

namespace {

constexpr std::size_t groups_per_scenario = 4;

/// rank process: --rank R --size N --scenario NAME --control FD [--small] FD...
int run_rank(const std::vector<std::string>& arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  ::alarm(120);  // a scenario that hangs has failed
  rank_setting setting;
  std::string name;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--rank")
      setting.rank = std::atoi(arguments[++i].c_str());
    else if (arguments[i] == "--size")
      setting.size = std::atoi(arguments[++i].c_str());
    else if (arguments[i] == "--scenario")
      name = arguments[++i];
    else if (arguments[i] == "--control")
      setting.control = std::atoi(arguments[++i].c_str());
    else if (arguments[i] == "--small")
      setting.small = true;
    else if (arguments[i] == "--one-gpu")
      setting.one_gpu = true;
    else
      setting.groups.push_back(std::atoi(arguments[i].c_str()));
  }
  setting.device = setting.one_gpu ? 0 : setting.rank;
  try {
    for (const scenario& s : all_scenarios())
      if (name == s.name) return s.run(setting);
  } catch (const std::exception& e) {
    std::printf("  rank %d: %s\n", setting.rank, e.what());
    return 1;
  }
  return 2;
}

/// The hubs and processes of one scenario.
class scenario_run {
 public:
  scenario_run(const scenario& what, int ranks, std::vector<std::string> options)
      : what_{what}, ranks_{ranks}, options_{std::move(options)} {
    for (std::size_t g = 0; g < groups_per_scenario; ++g) hubs_.push_back(std::make_unique<hub>(ranks));
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, control_) != 0)
      throw chorale::failure{chorale::error::from_os(errno, "socketpair")};
  }
  ~scenario_run() {
    for (int fd : control_)
      if (fd >= 0) ::close(fd);
  }
  scenario_run(const scenario_run&) = delete;
  scenario_run& operator=(const scenario_run&) = delete;

  int run() {
    std::vector<pid_t> processes(static_cast<std::size_t>(ranks_));
    // a victim's last group is kept for its second life
    const std::size_t first_life = what_.victim ? groups_per_scenario - 1 : groups_per_scenario;
    for (int r = 0; r < ranks_; ++r)
      processes[static_cast<std::size_t>(r)] = start(r, 0, r == 1 ? first_life : groups_per_scenario);
    ::close(control_[0]);
    control_[0] = -1;
    if (what_.victim) {
      for (std::size_t g = 0; g < first_life; ++g) release(g);
      hubs_.back()->release(0);
      char word = 0;
      [[maybe_unused]] const auto asked = ::read(control_[1], &word, 1);  // 0 when rank 0 ended early
      ::kill(processes[1], SIGKILL);
      [[maybe_unused]] const auto told = ::send(control_[1], "k", 1, MSG_NOSIGNAL);
      wait_for(processes[1]);
      processes[1] = start(1, groups_per_scenario - 1, groups_per_scenario);
    }
    for (std::size_t g = 0; g < groups_per_scenario; ++g) release(g);
    int worst = 0;
    for (pid_t p : processes) worst = std::max(worst, wait_for(p));
    return worst;
  }

 private:
  void release(std::size_t g) {
    for (int r = 0; r < ranks_; ++r) hubs_[g]->release(r);
  }
  pid_t start(int rank, std::size_t from, std::size_t to) {
    std::vector<std::string> arguments{
        "--rank",     std::to_string(rank), "--size",    std::to_string(ranks_),
        "--scenario", what_.name,           "--control", std::to_string(control_[0])};
    arguments.insert(arguments.end(), options_.begin(), options_.end());
    std::vector<int> all{control_[0], control_[1]};
    std::vector<int> keep;
    if (rank == 0) keep.push_back(control_[0]);
    for (std::size_t g = 0; g < hubs_.size(); ++g)
      for (int r = 0; r < ranks_; ++r) {
        all.push_back(hubs_[g]->end(r));
        if (r != rank || g < from || g >= to) continue;
        keep.push_back(hubs_[g]->end(r));
        arguments.push_back(std::to_string(hubs_[g]->end(r)));
      }
    return start_rank(arguments, all, keep);
  }
  const scenario& what_;
  int ranks_;
  std::vector<std::string> options_;
  std::vector<std::unique_ptr<hub>> hubs_;
  int control_[2] = {-1, -1};
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments{argv + 1, argv + argc};
  if (!arguments.empty() && arguments[0] == "--rank") return run_rank(arguments);

  auto loaded = chorale::cuda::cuda_driver::load();
  int devices = 0;
  if (loaded) (*loaded)->device_get_count(&devices);
  int ranks = 2;
  std::vector<std::string> wanted, options;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i] == "--one-gpu" && i + 1 < arguments.size()) {
      ranks = std::atoi(arguments[++i].c_str());
      options.emplace_back("--one-gpu");
    } else if (arguments[i] == "--small") {
      options.push_back(arguments[i]);
    } else {
      wanted.push_back(arguments[i]);
    }
  const int needed = std::find(options.begin(), options.end(), "--one-gpu") == options.end() ? ranks : 1;
  if (devices < needed) {
    std::printf("skipped: these tests need %d GPUs, this machine shows %d%s\n", needed, devices,
                loaded ? "" : (" (" + loaded.error().detail() + ")").c_str());
    return 77;
  }
  int failed = 0;
  for (const scenario& s : all_scenarios()) {
    bool chosen = wanted.empty();
    for (const std::string& w : wanted) chosen = chosen || w == s.name;
    if (!chosen) continue;
    std::printf("%s\n", s.name);
    std::fflush(stdout);
    const int code = scenario_run{s, ranks, options}.run();
    std::printf("%s: %s\n", s.name, code == 0 ? "ok" : ("FAILED, exit code " + std::to_string(code)).c_str());
    std::fflush(stdout);
    failed += code == 0 ? 0 : 1;
  }
  return failed == 0 ? 0 : 1;
}
