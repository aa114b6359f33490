#include "bench_versus.hpp"

#include "child.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace chorale::tools {
namespace {

using bench::versus::contestant_plan;
using bench::versus::match;

struct known_peer {
  std::string_view name;
  const char* program;
  const char* needs;  ///< a program beside it, or null
  const char* package;
  std::vector<contestant_plan> (*plans)(const match&, const std::string& program);
};
constexpr known_peer known_peers[] = {
    {"openmpi", "openmpi_peer", "mpirun", "libopenmpi-dev and openmpi-bin", bench::versus::openmpi_plans},
    {"gloo", "gloo_peer", nullptr, "libgloo-dev", bench::versus::gloo_plans},
};

/// The ways of one peer that can be tried here; none with a reason printed.
std::vector<contestant_plan> plans_of(const known_peer& peer, const match& what) {
  const std::string name{peer.name};
  const auto program = find_program(peer.program);
  if (!program || (peer.needs && !find_program(peer.needs))) {
    std::fprintf(stderr, "left out: %s (not there when this was built; install %s, then build again)\n",
                 name.c_str(), peer.package);
    return {};
  }
  std::vector<contestant_plan> plans = peer.plans(what, *program);
  if (plans.empty())
    std::fprintf(stderr, "left out: %s (it has no way over %s)\n", name.c_str(), what.transport.c_str());
  return plans;
}

}  // namespace

int run_versus(versus_request request) {
  std::vector<contestant_plan> peers;
  for (const known_peer& peer : known_peers) {
    if (std::ranges::find(request.peers, peer.name) == request.peers.end()) continue;
    std::vector<contestant_plan> plans = plans_of(peer, request.what);
    peers.insert(peers.end(), std::make_move_iterator(plans.begin()), std::make_move_iterator(plans.end()));
  }
  if (peers.empty()) {
    std::fprintf(stderr, "chorale bench: no peer is there to compare with\n");
    return 1;
  }
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  contestant_plan ours = bench::versus::own_plan(request.what, self.string(), request.options.algorithm);
  bench::versus::comparison_options options;
  options.common = request.options;
  options.what = request.what;
  options.alternations = request.alternations;
  bench::versus::comparison comparing{std::move(options), std::move(ours), std::move(peers)};
  return comparing.run();
}

}  // namespace chorale::tools
