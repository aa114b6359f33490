#include <chorale/transport/bootstrap/config.hpp>
#include <chorale/transport/bootstrap/secret.hpp>

#include <bit>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <span>

namespace chorale {
namespace {

error bad_variable(std::string_view name, std::string_view value, std::string_view wanted) {
  return error{errc::invalid_argument,
               std::string{name} + "=" + std::string{value} + ": " + std::string{wanted}};
}

result<long> number_from(const variable_lookup& variables, const char* name, long low, long high) {
  const auto text = variables(name);
  if (!text)
    return error{errc::invalid_argument,
                 std::string{name} + " is not set, but needed beside the launcher's others"};
  long value = 0;
  const char* const end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (text->empty() || parsed.ec != std::errc{} || parsed.ptr != end || value < low || value > high)
    return bad_variable(name, *text,
                        "write a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  return value;
}

struct place {
  launcher by = launcher::none;
  rank_t rank = 0;
  rank_t size = 1;
  long local_size = 0;  // 0: not told
};

constexpr long most_ranks = 1 << 20;

result<place> place_from(const variable_lookup& variables, launcher by, const char* rank_name,
                         const char* size_name, const char* local_size_name) {
  const auto size = number_from(variables, size_name, 1, most_ranks);
  if (!size) return size.error();
  const auto rank = number_from(variables, rank_name, 0, *size - 1);
  if (!rank) return rank.error();
  place p{by, static_cast<rank_t>(*rank), static_cast<rank_t>(*size), 0};
  if (local_size_name && variables(local_size_name)) {
    const auto local = number_from(variables, local_size_name, 1, *size);
    if (!local) return local.error();
    p.local_size = *local;
  }
  return p;
}

// Innermost first: mpirun and torchrun are often started inside a Slurm step or a Kubernetes pod, whose
// variables then describe the outer launch.
result<place> find_place(const variable_lookup& variables) {
  const auto set = [&](const char* name) { return variables(name).has_value(); };
  if (set("CHORALE_RANK"))
    return place_from(variables, launcher::chorale, "CHORALE_RANK", "CHORALE_SIZE", nullptr);

  const bool by_mpirun = set("OMPI_COMM_WORLD_RANK");
  const bool by_torchrun = set("RANK") && set("WORLD_SIZE");
  if (by_mpirun) {
    const auto mpi = place_from(variables, launcher::mpirun, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_SIZE");
    if (!mpi || !by_torchrun) return mpi;
    const auto torch = place_from(variables, launcher::torchrun, "RANK", "WORLD_SIZE", nullptr);
    if (torch && torch->rank == mpi->rank && torch->size == mpi->size) return mpi;
    return error{errc::invalid_argument,
                 "mpirun (OMPI_COMM_WORLD_RANK=" + *variables("OMPI_COMM_WORLD_RANK") +
                     ") and torchrun (RANK=" + *variables("RANK") +
                     ") disagree on who this process is; set CHORALE_RANK, CHORALE_SIZE and "
                     "CHORALE_ROOT to decide"};
  }
  if (by_torchrun) return place_from(variables, launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE");
  // PMI_RANK alone may be Slurm's; the other is Hydra's own.
  if (set("PMI_RANK") && set("MPI_LOCALNRANKS"))
    return place_from(variables, launcher::hydra, "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS");
  // A batch script has SLURM_PROCID too; only a step started by srun has a step id.
  if (set("SLURM_PROCID") && set("SLURM_STEP_ID")) {
    auto step = place_from(variables, launcher::srun, "SLURM_PROCID",
                           set("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", nullptr);
    if (!step) return step;
    const auto nodes = variables("SLURM_STEP_NUM_NODES");
    if (nodes && *nodes == "1") step->local_size = step->size;
    return step;
  }
  if (set("JOB_COMPLETION_INDEX")) {
    if (!set("CHORALE_SIZE"))
      return error{errc::invalid_argument,
                   "JOB_COMPLETION_INDEX=" + *variables("JOB_COMPLETION_INDEX") +
                       ", but Kubernetes does not tell how many pods the job has: set CHORALE_SIZE to "
                       "spec.completions; a pod that works alone sets CHORALE_RANK=0 and CHORALE_SIZE=1"};
    return place_from(variables, launcher::kubernetes, "JOB_COMPLETION_INDEX", "CHORALE_SIZE", nullptr);
  }
  if (set("CHORALE_SIZE"))
    return error{errc::invalid_argument,
                 "CHORALE_SIZE is set and CHORALE_RANK is not: set both, or start with chorale run"};
  return place{};
}

std::string secret_from(const variable_lookup& variables, launcher by) {
  if (auto own = variables("CHORALE_SECRET")) return *own;
  // Open MPI makes a random key per job for its own transports.
  if (by == launcher::mpirun)
    if (auto key = variables("OMPI_MCA_orte_precondition_transports")) return *key;
  return {};
}

// A name that every rank of one launch derives alike and no other launch does. Whatever secret part goes in
// does not come out: abstract names are visible to everybody on the host.
result<std::string> job_name(const variable_lookup& variables, const place& p) {
  std::string id;
  const auto add = [&](const char* name) {
    if (const auto value = variables(name)) id += std::string{name} + "=" + *value + "\n";
  };
  switch (p.by) {
    case launcher::mpirun:
      add("OMPI_MCA_orte_precondition_transports");
      add("OMPI_MCA_ess_base_jobid");
      add("PMIX_NAMESPACE");
      break;
    case launcher::torchrun:
      add("TORCHELASTIC_RUN_ID");
      add("TORCHELASTIC_RESTART_COUNT");
      add("MASTER_PORT");
      break;
    case launcher::srun:
      add("SLURM_JOB_ID");
      add("SLURM_STEP_ID");
      break;
    default:
      break;
  }
  if (id.empty())
    return error{errc::bootstrap_failed,
                 std::string{name_of(p.by)} +
                     " left no job identifier in the environment; set CHORALE_ROOT=address:port"};
  const proof digest = hmac_sha256(id, std::as_bytes(std::span{"chorale job name", 16}));
  return "chorale-" + to_hex(std::span{digest}.first(12));
}

result<address> root_from(const variable_lookup& variables, const place& p) {
  if (const auto text = variables("CHORALE_ROOT")) {
    auto root = address::parse(*text);
    if (!root) return error{errc::invalid_argument, "CHORALE_ROOT: " + root.error().detail()};
    if (!root->is_unix() && root->port() == 0)
      return bad_variable("CHORALE_ROOT", *text,
                          "port 0 can not be met; write the port that rank 0 shall listen on");
    if (root->is_wildcard())
      return bad_variable("CHORALE_ROOT", *text,
                          "write an address of rank 0's host that the other ranks can reach");
    return root;
  }
  if (p.size == 1) return address::unix_abstract("chorale-alone-" + random_hex(12));
  if (p.local_size == p.size) {
    auto name = job_name(variables, p);
    if (!name) return name.error();
    return address::unix_abstract(*name);
  }
  std::string advice =
      "the " + std::to_string(p.size) + " ranks " +
      (p.by == launcher::chorale ? "of CHORALE_SIZE" : "started by " + std::string{name_of(p.by)}) +
      " need a place to meet: set CHORALE_ROOT=address:port (an address of rank 0's host and a free "
      "port) and CHORALE_SECRET on every rank";
  if (p.by == launcher::torchrun) advice += "; MASTER_ADDR:MASTER_PORT is taken by torchrun's own store";
  return error{errc::bootstrap_failed, std::move(advice)};
}

result<void> read_options(const variable_lookup& variables, bootstrap_config& into) {
  const auto seconds = [&](const char* name, duration& target) -> result<void> {
    if (!variables(name)) return {};
    const auto value = number_from(variables, name, 1, 86400);
    if (!value) return value.error();
    target = std::chrono::seconds{*value};
    return {};
  };
  if (auto read = seconds("CHORALE_BOOTSTRAP_TIMEOUT", into.timeout); !read) return read;
  if (auto read = seconds("CHORALE_RESET_GRACE", into.reset_grace); !read) return read;
  if (variables("CHORALE_STRIPES")) {
    const auto stripes = number_from(variables, "CHORALE_STRIPES", 1, 64);
    if (!stripes) return stripes.error();
    into.stripes = static_cast<int>(*stripes);
  }
  if (const auto transport = variables("CHORALE_TRANSPORT")) {
    if (*transport != "tcp" && *transport != "auto")
      return bad_variable("CHORALE_TRANSPORT", *transport, "write tcp, or auto to let chorale choose");
    into.tcp_between_mates = *transport == "tcp";
  }
  if (const auto names = variables("CHORALE_SOCKET_IFNAME")) into.interfaces = interface_filter{*names};
  if (const auto id = variables("CHORALE_HOSTID")) {
    if (id->empty() || id->size() > 255)
      return bad_variable("CHORALE_HOSTID", *id, "write 1 to 255 characters");
    into.host_id = *id;
    return {};
  }
  auto id = boot_id();
  if (!id) return id.error();
  into.host_id = *std::move(id);
  return {};
}

}  // namespace

std::string_view name_of(launcher l) noexcept {
  switch (l) {
    case launcher::none:
      return "no launcher";
    case launcher::chorale:
      return "chorale run";
    case launcher::mpirun:
      return "mpirun";
    case launcher::hydra:
      return "mpiexec.hydra";
    case launcher::torchrun:
      return "torchrun";
    case launcher::srun:
      return "srun";
    case launcher::kubernetes:
      return "Kubernetes";
  }
  return "unknown";
}

variable_lookup process_variables() {
  return [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    return value ? std::optional<std::string>{value} : std::nullopt;
  };
}

bool default_control_pairs(rank_t low, rank_t high, rank_t size) noexcept {
  constexpr rank_t all_up_to = 64;
  if (size <= all_up_to) return true;
  const auto power = [](rank_t d) { return std::has_single_bit(static_cast<std::uint32_t>(d)); };
  return power(high - low) || power(size - (high - low));
}

result<std::string> boot_id() {
  std::ifstream file{"/proc/sys/kernel/random/boot_id"};
  std::string id;
  if (file >> id) return id;
  return error{errc::bootstrap_failed,
               "/proc/sys/kernel/random/boot_id can not be read; set CHORALE_HOSTID to a name that differs "
               "between hosts"};
}

result<bootstrap_config> bootstrap_config::from_environment(const variable_lookup& variables) {
  const auto found = find_place(variables);
  if (!found) return found.error();
  bootstrap_config config;
  config.rank = found->rank;
  config.size = found->size;
  config.started_by = found->by;
  config.secret = secret_from(variables, found->by);
  auto root = root_from(variables, *found);
  if (!root) return std::move(root).error();
  config.root = *root;
  config.hosts_rendezvous = config.rank == 0 && !variables("CHORALE_RENDEZVOUS");
  if (const auto host = variables("CHORALE_RENDEZVOUS"); host && *host != "launcher")
    return bad_variable("CHORALE_RENDEZVOUS", *host,
                        "only \"launcher\" is known; unset it to let rank 0 serve");
  if (!config.root.is_local() && config.secret.empty())
    return error{errc::bootstrap_failed, "CHORALE_ROOT=" + config.root.text() +
                                             " can be reached from other hosts, and CHORALE_SECRET is not "
                                             "set; give every rank the same secret, "
                                             "e.g. the output of: openssl rand -hex 32"};
  if (auto read = read_options(variables, config); !read) return read.error();
  return config;
}

}  // namespace chorale
