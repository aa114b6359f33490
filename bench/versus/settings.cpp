#include "settings.hpp"

namespace chorale::bench::versus {
namespace {

using words = std::vector<std::string>;

contestant_plan openmpi_plan(const match& m, const std::string& program, std::string setting,
                             const words& parameters) {
  contestant_plan plan;
  plan.side = "openmpi";
  plan.setting = std::move(setting);
  plan.fifos = m.ranks;
  words command{"mpirun",
                "--allow-run-as-root",
                "--oversubscribe",
                "--bind-to",
                "none",
                "-n",
                std::to_string(m.ranks),
                "--mca",
                "btl_base_warn_component_unused",
                "0"};
  command.insert(command.end(), parameters.begin(), parameters.end());
  command.insert(command.end(), {program, "FOLDER"});
  plan.commands = {command};
  return plan;
}

/// Open MPI's number of an algorithm that its own decisions leave out where it may be the better one.
struct forced_algorithm {
  collective_kind kind;
  const char* name;
  const char* parameter;
  const char* number;
};
constexpr forced_algorithm forced[] = {
    {collective_kind::all_reduce, "ring", "coll_tuned_allreduce_algorithm", "4"},
    {collective_kind::all_reduce, "rabenseifner", "coll_tuned_allreduce_algorithm", "6"},
    {collective_kind::broadcast, "pipeline", "coll_tuned_bcast_algorithm", "3"},
    {collective_kind::all_gather, "ring", "coll_tuned_allgather_algorithm", "4"},
    {collective_kind::all_to_all, "pairwise", "coll_tuned_alltoall_algorithm", "2"},
};

}  // namespace

contestant_plan own_plan(const match& m, const std::string& chorale_program, const std::string& algorithm) {
  contestant_plan plan;
  plan.side = "chorale";
  plan.setting = algorithm;
  words command{chorale_program,         "bench",       "serve",    "--ranks",
                std::to_string(m.ranks), "--transport", m.transport};
  if (!algorithm.empty()) {
    // A barrier takes its algorithm from all_reduce.
    const collective_kind served =
        m.what->kind == collective_kind::barrier ? collective_kind::all_reduce : m.what->kind;
    command.insert(command.end(), {"--algo", std::string{name_of(served)} + "=" + algorithm});
  }
  plan.commands = {command};
  return plan;
}

std::vector<contestant_plan> openmpi_plans(const match& m, const std::string& peer_program) {
  std::vector<contestant_plan> plans;
  const words tcp{"--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"};
  const auto vader = [](const char* single_copy) {
    return words{"--mca",    "pml",        "ob1",   "--mca",
                 "btl",      "self,vader", "--mca", "btl_vader_single_copy_mechanism",
                 single_copy};
  };
  const bool shared = m.transport == "shm";
  const words usual = shared ? vader("cma") : tcp;
  const std::string usually = shared ? "vader, CMA" : "tcp";
  plans.push_back(openmpi_plan(m, peer_program, usually, usual));
  if (shared) plans.push_back(openmpi_plan(m, peer_program, "vader, no CMA", vader("none")));
  if (m.ranks <= 2) return plans;  // with two ranks the algorithms are all the same
  for (const forced_algorithm& f : forced) {
    if (f.kind != m.what->kind) continue;
    words parameters = usual;
    parameters.insert(parameters.end(),
                      {"--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", f.parameter, f.number});
    plans.push_back(openmpi_plan(m, peer_program, usually + ", " + f.name, parameters));
  }
  return plans;
}

std::vector<contestant_plan> gloo_plans(const match& m, const std::string& peer_program) {
  std::vector<contestant_plan> plans;
  if (m.transport != "tcp") return plans;
  words algorithms{"ring"};
  if (m.what->kind == collective_kind::all_reduce)
    algorithms = {"ring", "bcube", "ring_chunked", "halving_doubling"};
  for (const std::string& algorithm : algorithms) {
    contestant_plan plan;
    plan.side = "gloo";
    if (algorithms.size() > 1) plan.setting = algorithm;
    plan.fifos = m.ranks;
    for (rank_t r = 0; r < m.ranks; ++r)
      plan.commands.push_back(
          {peer_program, "FOLDER", std::to_string(r), std::to_string(m.ranks), algorithm});
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace chorale::bench::versus
