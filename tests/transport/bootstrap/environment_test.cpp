// Every row of the table in docs/launchers.md: what is read from each launcher and what is refused.
#include <chorale/transport/bootstrap/config.hpp>

#include <boost/test/unit_test.hpp>

#include <map>

namespace chorale {
namespace {

using variables = std::map<std::string, std::string>;

result<bootstrap_config> read(variables v) {
  return bootstrap_config::from_environment(
      [v = std::move(v)](const char* name) -> std::optional<std::string> {
        const auto found = v.find(name);
        return found == v.end() ? std::nullopt : std::optional{found->second};
      });
}

void refuses(const variables& v, errc code, std::string_view mention) {
  const auto config = read(v);
  BOOST_TEST_REQUIRE(!config);
  BOOST_TEST((config.error().code() == code));
  BOOST_TEST_CONTEXT(config.error().message())
  BOOST_TEST((config.error().message().find(mention) != std::string::npos));
}

const variables by_mpirun{{"OMPI_COMM_WORLD_RANK", "2"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                          {"OMPI_MCA_orte_precondition_transports", "1234abcd-5678ef01"}};
const variables by_torchrun{{"RANK", "1"},
                            {"WORLD_SIZE", "2"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "x"},
                            {"MASTER_ADDR", "host"}};

variables with(variables v, const variables& more) {
  for (const auto& [name, value] : more) v[name] = value;
  return v;
}

BOOST_AUTO_TEST_SUITE(environment)

BOOST_AUTO_TEST_CASE(nothing_set_is_a_job_of_one) {
  const auto config = read({});
  BOOST_TEST_REQUIRE(config.has_value());
  BOOST_TEST(config->size == 1);
  BOOST_TEST(config->hosts_rendezvous);
  BOOST_TEST((config->started_by == launcher::none));
}

BOOST_AUTO_TEST_CASE(chorale_run) {
  const auto config = read({{"CHORALE_RANK", "3"},
                            {"CHORALE_SIZE", "8"},
                            {"CHORALE_ROOT", "unix:@place"},
                            {"CHORALE_SECRET", "s"},
                            {"CHORALE_RENDEZVOUS", "launcher"},
                            {"CHORALE_HOSTID", "h"},
                            {"CHORALE_BOOTSTRAP_TIMEOUT", "7"},
                            {"CHORALE_STRIPES", "4"},
                            {"CHORALE_TRANSPORT", "tcp"}});
  BOOST_TEST_REQUIRE(config.has_value());
  BOOST_TEST(config->rank == 3);
  BOOST_TEST(config->size == 8);
  BOOST_TEST(config->root.text() == "unix:@place");
  BOOST_TEST(config->secret == "s");
  BOOST_TEST(!config->hosts_rendezvous);
  BOOST_TEST(config->host_id == "h");
  BOOST_TEST((config->timeout == std::chrono::seconds{7}));
  BOOST_TEST(config->stripes == 4);
  BOOST_TEST(config->tcp_between_mates);
}

BOOST_AUTO_TEST_CASE(rank_0_serves_without_a_launcher_that_does) {
  const auto config =
      read({{"CHORALE_RANK", "0"}, {"CHORALE_SIZE", "2"}, {"CHORALE_ROOT", "127.0.0.1:7000"}});
  BOOST_TEST_REQUIRE(config.has_value());
  BOOST_TEST(config->hosts_rendezvous);
}

BOOST_AUTO_TEST_CASE(mpirun_on_one_host) {
  const auto config = read(by_mpirun);
  BOOST_TEST_REQUIRE(config.has_value());
  BOOST_TEST(config->rank == 2);
  BOOST_TEST(config->size == 4);
  BOOST_TEST(config->root.is_unix());
  BOOST_TEST(config->secret == "1234abcd-5678ef01");
  BOOST_TEST((config->root.text().find("1234abcd") == std::string::npos));
  const auto other = read(with(by_mpirun, {{"OMPI_COMM_WORLD_RANK", "0"}}));
  BOOST_TEST(other->root.text() == config->root.text());
  const auto next_job = read(with(by_mpirun, {{"OMPI_MCA_orte_precondition_transports", "other"}}));
  BOOST_TEST(next_job->root.text() != config->root.text());
}

BOOST_AUTO_TEST_CASE(mpirun_on_several_hosts_needs_a_root) {
  const auto several = with(by_mpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  refuses(several, errc::bootstrap_failed, "CHORALE_ROOT");
  BOOST_TEST(read(with(several, {{"CHORALE_ROOT", "10.0.0.1:7000"}})).has_value());
}

BOOST_AUTO_TEST_CASE(mpirun_inside_slurm_describes_the_ranks) {
  const auto config =
      read(with(by_mpirun, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "1"}}));
  BOOST_TEST_REQUIRE(config.has_value());
  BOOST_TEST((config->started_by == launcher::mpirun));
}

BOOST_AUTO_TEST_CASE(hydra_names_no_job) {
  const variables by_hydra{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};
  refuses(by_hydra, errc::bootstrap_failed, "mpiexec.hydra left no job identifier");
  refuses(with(by_hydra, {{"MPI_LOCALNRANKS", "1"}}), errc::bootstrap_failed, "CHORALE_ROOT");
  const auto config = read(with(by_hydra, {{"CHORALE_ROOT", "unix:@x"}}));
  BOOST_TEST_REQUIRE(config.has_value());
  BOOST_TEST(config->rank == 1);
  BOOST_TEST(config->size == 2);
  BOOST_TEST((config->started_by == launcher::hydra));
  BOOST_TEST(
      read(with(by_hydra, {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MPI_LOCALNRANKS", "1"}})).has_value());
}

BOOST_AUTO_TEST_CASE(slurm_may_speak_pmi_too) {
  const auto config = read({{"SLURM_PROCID", "1"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_STEP_NUM_TASKS", "2"},
                            {"SLURM_STEP_NUM_NODES", "1"},
                            {"SLURM_JOB_ID", "7"},
                            {"PMI_RANK", "1"},
                            {"PMI_SIZE", "2"}});
  BOOST_TEST_REQUIRE(config.has_value());
  BOOST_TEST((config->started_by == launcher::srun));
}

BOOST_AUTO_TEST_CASE(torchrun) {
  BOOST_TEST_REQUIRE(read(by_torchrun).has_value());
  BOOST_TEST(read(by_torchrun)->root.is_unix());
  refuses(with(by_torchrun, {{"LOCAL_WORLD_SIZE", "1"}}), errc::bootstrap_failed, "MASTER_PORT is taken");
}

BOOST_AUTO_TEST_CASE(mpirun_and_torchrun_that_disagree_are_ambiguous) {
  refuses(with(by_mpirun, by_torchrun), errc::invalid_argument, "disagree");
  BOOST_TEST(read(with(with(by_mpirun, by_torchrun), {{"RANK", "2"}, {"WORLD_SIZE", "4"}})).has_value());
}

BOOST_AUTO_TEST_CASE(srun) {
  const variables step{{"SLURM_PROCID", "1"},
                       {"SLURM_STEP_ID", "4"},
                       {"SLURM_STEP_NUM_TASKS", "2"},
                       {"SLURM_NTASKS", "64"},
                       {"SLURM_JOB_ID", "77"}};
  refuses(step, errc::bootstrap_failed, "srun");
  const auto one_node = read(with(step, {{"SLURM_STEP_NUM_NODES", "1"}}));
  BOOST_TEST_REQUIRE(one_node.has_value());
  BOOST_TEST(one_node->size == 2);
  const auto rooted = read(with(step, {{"CHORALE_ROOT", "10.0.0.1:7000"}, {"CHORALE_SECRET", "s"}}));
  BOOST_TEST_REQUIRE(rooted.has_value());
  BOOST_TEST(rooted->rank == 1);
}

BOOST_AUTO_TEST_CASE(a_batch_script_is_no_step) {
  const auto config = read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "64"}});
  BOOST_TEST_REQUIRE(config.has_value());
  BOOST_TEST(config->size == 1);
}

BOOST_AUTO_TEST_CASE(kubernetes_indexed_job) {
  const variables pod{{"JOB_COMPLETION_INDEX", "1"}, {"CHORALE_SIZE", "3"}};
  refuses(pod, errc::bootstrap_failed, "Kubernetes");
  refuses({{"JOB_COMPLETION_INDEX", "1"}}, errc::invalid_argument, "set CHORALE_SIZE");
  const auto alone = read({{"JOB_COMPLETION_INDEX", "1"}, {"CHORALE_RANK", "0"}, {"CHORALE_SIZE", "1"}});
  BOOST_TEST_REQUIRE(alone.has_value());
  refuses(with(pod, {{"CHORALE_ROOT", "10.0.0.1:7000"}}), errc::bootstrap_failed, "CHORALE_SECRET");
  const auto config = read(with(pod, {{"CHORALE_ROOT", "10.0.0.1:7000"}, {"CHORALE_SECRET", "s"}}));
  BOOST_TEST_REQUIRE(config.has_value());
  BOOST_TEST((config->started_by == launcher::kubernetes));
}

BOOST_AUTO_TEST_CASE(a_secret_is_required_beyond_this_host) {
  const variables two{{"CHORALE_RANK", "0"}, {"CHORALE_SIZE", "2"}};
  refuses(with(two, {{"CHORALE_ROOT", "192.0.2.1:7000"}}), errc::bootstrap_failed, "CHORALE_SECRET");
  refuses(with(two, {{"CHORALE_ROOT", "[2001:db8::1]:7000"}}), errc::bootstrap_failed, "CHORALE_SECRET");
  for (const char* local : {"127.0.0.1:7000", "[::1]:7000", "unix:@x"})
    BOOST_TEST(read(with(two, {{"CHORALE_ROOT", local}})).has_value());
}

BOOST_AUTO_TEST_CASE(bad_values_are_named) {
  const variables two{{"CHORALE_RANK", "0"}, {"CHORALE_SIZE", "2"}, {"CHORALE_ROOT", "unix:@x"}};
  refuses(with(two, {{"CHORALE_RANK", "2"}}), errc::invalid_argument, "CHORALE_RANK=2");
  refuses(with(two, {{"CHORALE_RANK", ""}}), errc::invalid_argument, "CHORALE_RANK=");
  refuses(with(two, {{"CHORALE_RANK", "-1"}}), errc::invalid_argument, "CHORALE_RANK=-1");
  refuses(with(two, {{"CHORALE_SIZE", "two"}}), errc::invalid_argument, "CHORALE_SIZE=two");
  refuses(with(two, {{"CHORALE_SIZE", "0"}}), errc::invalid_argument, "CHORALE_SIZE=0");
  refuses(with(two, {{"CHORALE_ROOT", "nowhere"}}), errc::invalid_argument, "CHORALE_ROOT");
  refuses(with(two, {{"CHORALE_ROOT", "127.0.0.1:0"}}), errc::invalid_argument, "port");
  refuses(with(two, {{"CHORALE_ROOT", "0.0.0.0:7000"}}), errc::invalid_argument, "0.0.0.0");
  refuses(with(two, {{"CHORALE_ROOT", "::1:70"}}), errc::invalid_argument, "brackets");
  refuses(with(two, {{"CHORALE_TRANSPORT", "udp"}}), errc::invalid_argument, "CHORALE_TRANSPORT=udp");
  refuses(with(two, {{"CHORALE_BOOTSTRAP_TIMEOUT", "1m"}}), errc::invalid_argument,
          "CHORALE_BOOTSTRAP_TIMEOUT=1m");
  refuses(with(two, {{"CHORALE_STRIPES", "0"}}), errc::invalid_argument, "CHORALE_STRIPES=0");
  refuses(with(two, {{"CHORALE_HOSTID", ""}}), errc::invalid_argument, "CHORALE_HOSTID");
  refuses({{"CHORALE_RANK", "0"}}, errc::invalid_argument, "CHORALE_SIZE is not set");
  refuses({{"CHORALE_SIZE", "2"}}, errc::invalid_argument, "CHORALE_RANK is not");
  refuses({{"CHORALE_RANK", "0"}, {"CHORALE_SIZE", "2"}}, errc::bootstrap_failed, "CHORALE_ROOT");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace chorale
