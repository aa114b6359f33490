// Ranks started by others than `chorale run`, as docs/launchers.md promises. What is read from which variable
// is tested without processes in tests/transport/bootstrap/environment_test.cpp.
#include "local_slurm.hpp"
#include "program.hpp"
#include "two_hosts.hpp"

#include <boost/test/unit_test.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

using namespace chorale::tools_test;

outcome run_shell(const std::string& script) { return finish(start_program({"sh", "-c", script})); }

BOOST_AUTO_TEST_SUITE(launchers)

BOOST_AUTO_TEST_CASE(ranks_started_by_hand_meet) {
  const std::string root = "unix:@chorale-by-hand-" + std::to_string(::getpid());
  const outcome o =
      run_shell("export CHORALE_SIZE=3 CHORALE_ROOT=" + root + "; for r in 2 1 0; do CHORALE_RANK=$r " +
                variable("CHORALE_RANK_PROGRAM") + " ok & done; wait");
  BOOST_TEST_CONTEXT(o.output)
  for (const char* r : {"0", "1", "2"})
    BOOST_TEST(o.says(std::string{"rank "} + r + " of 3, epoch 1, 2 mates"));
}

BOOST_AUTO_TEST_CASE(torchrun_variables_on_one_host) {
  const outcome o = run_shell(
      "export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 TORCHELASTIC_RUN_ID=" +
      std::to_string(::getpid()) + "; for r in 1 0; do RANK=$r " + variable("CHORALE_RANK_PROGRAM") +
      " ok & done; wait");
  BOOST_TEST_CONTEXT(o.output) BOOST_TEST(o.says("rank 1 of 2, epoch 1, 1 mates"));
}

BOOST_AUTO_TEST_CASE(pods_of_an_indexed_job_meet) {
  const std::string root = "127.0.0.1:" + std::to_string(free_ports(1).front());
  const outcome o = run_shell("export CHORALE_SIZE=3 CHORALE_SECRET=s CHORALE_ROOT=" + root +
                              "; for r in 2 1 0; do CHORALE_HOSTID=pod$r JOB_COMPLETION_INDEX=$r " +
                              variable("CHORALE_RANK_PROGRAM") + " ok & done; wait");
  BOOST_TEST_CONTEXT(o.output)
  for (const char* r : {"0", "1", "2"})
    BOOST_TEST(o.says(std::string{"rank "} + r + " of 3, epoch 1, 0 mates, 2 data sockets"));
}

boost::test_tools::assertion_result mpirun_is_here(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result found{std::system("command -v mpirun >/dev/null") == 0};
  found.message() << "Open MPI is not installed";
  return found;
}

BOOST_AUTO_TEST_CASE(mpirun_starts_ranks_too, *boost::unit_test::precondition(mpirun_is_here)) {
  const outcome o = run_shell("mpirun --allow-run-as-root --oversubscribe -n 3 " +
                              variable("CHORALE_RANK_PROGRAM") + " ok");
  BOOST_TEST_CONTEXT(o.output) {
    BOOST_TEST(o.code == 0);
    BOOST_TEST(o.says("rank 2 of 3, epoch 1, 2 mates"));
  }
}

// mpirun over two hosts.

/// What mpirun takes for ssh: `AGENT ADDRESS COMMAND…` runs the command on the host of that address.
class remote_shell {
 public:
  explicit remote_shell(const two_hosts& hosts)
      : path_{"/tmp/chorale-remote-shell-" + std::to_string(::getpid())} {
    std::ofstream{path_} << "#!/bin/sh\n"
                         << "address=$1\nshift\n"
                         << "case $address in\n"
                         << "  10.77.0.1) host=" << hosts.names[0] << " ;;\n"
                         << "  10.77.0.2) host=" << hosts.names[1] << " ;;\n"
                         << "  *) echo \"no such host: $address\" >&2; exit 1 ;;\n"
                         << "esac\n"
                         << "exec ip netns exec \"$host\" sh -c \"$*\"\n";
    ::chmod(path_.c_str(), 0700);
  }
  remote_shell(const remote_shell&) = delete;
  remote_shell& operator=(const remote_shell&) = delete;
  ~remote_shell() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

outcome mpirun_on(const two_hosts& hosts, const std::string& script) {
  const remote_shell agent{hosts};
  return finish(start_program(hosts.command_on(
      0, {"timeout", "60", "mpirun", "--allow-run-as-root", "--host", "10.77.0.1:2,10.77.0.2:2", "--mca",
          "plm_rsh_agent", agent.path(), "-x", "CHORALE_BOOTSTRAP_TIMEOUT=20", "sh", "-c", script})));
}

BOOST_AUTO_TEST_CASE(mpirun_over_two_hosts, *boost::unit_test::precondition(mpirun_is_here) *
                                                boost::unit_test::precondition(namespaces_work)) {
  const two_hosts hosts;
  // Two jobs one after the other, so that the first shows what connects the ranks of the second.
  const outcome o =
      mpirun_on(hosts, "CHORALE_ROOT=10.77.0.1:7302 " + variable("CHORALE_RANK_PROGRAM") +
                           " ok && CHORALE_ROOT=10.77.0.1:7303 exec " + variable("CHORALE_TOOL") +
                           " bench all_reduce -b 8 -e 16M -f 4 -c 1 -n 3 -w 1");
  BOOST_TEST_CONTEXT(o.output) {
    BOOST_TEST(o.code == 0);
    for (const char* r : {"0", "1", "2", "3"})
      BOOST_TEST(o.says(std::string{"rank "} + r + " of 4, epoch 1, 1 mates, 2 data sockets"));
    BOOST_TEST(o.says("on 4 ranks over mixed"));
    BOOST_TEST(o.says("    16777216 "));
    BOOST_TEST(o.says("# wrong values: 0"));
  }
}

BOOST_AUTO_TEST_CASE(mpirun_over_two_hosts_needs_a_root,
                     *boost::unit_test::precondition(mpirun_is_here) *
                         boost::unit_test::precondition(namespaces_work)) {
  const two_hosts hosts;
  const outcome o = mpirun_on(hosts, variable("CHORALE_RANK_PROGRAM") + " ok");
  BOOST_TEST_CONTEXT(o.output) {
    BOOST_TEST(o.code == 3);
    BOOST_TEST(o.says("the 4 ranks started by mpirun need a place to meet: set CHORALE_ROOT"));
  }
}

// Slurm.

BOOST_AUTO_TEST_CASE(srun_starts_ranks_too, *boost::unit_test::precondition(slurm_is_here)) {
  const local_slurm slurm;
  const std::string program = variable("CHORALE_RANK_PROGRAM");

  const outcome one_node = slurm.srun({"--nodes=1", "--ntasks=3", program, "ok"});
  BOOST_TEST_CONTEXT(one_node.output) {
    BOOST_TEST(one_node.code == 0);
    for (const char* r : {"0", "1", "2"})
      BOOST_TEST(one_node.says(std::string{"rank "} + r + " of 3, epoch 1, 2 mates"));
  }

  const outcome rootless = slurm.srun({"--nodes=2", "--ntasks=4", program, "ok"});
  BOOST_TEST_CONTEXT(rootless.output) {
    BOOST_TEST(rootless.code == 3);
    BOOST_TEST(rootless.says("the 4 ranks started by srun need a place to meet: set CHORALE_ROOT"));
  }

  const std::string root = "CHORALE_ROOT=127.0.0.1:" + std::to_string(free_ports(1).front());
  const outcome two_nodes =
      slurm.srun({"--nodes=2", "--ntasks=4", "env", root, "CHORALE_SECRET=of the two nodes", program, "ok"});
  BOOST_TEST_CONTEXT(two_nodes.output) {
    BOOST_TEST(two_nodes.code == 0);
    for (const char* r : {"0", "1", "2", "3"})
      BOOST_TEST(two_nodes.says(std::string{"rank "} + r + " of 4, epoch 1"));
  }

  const outcome lost =
      slurm.srun({"--nodes=1", "--ntasks=2", "--kill-on-bad-exit=1", program, "exit", "1", "42"});
  BOOST_TEST_CONTEXT(lost.output) BOOST_TEST(lost.code != 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
