// `chorale run` as its users meet it: exit codes, times, messages. CHORALE_TOOL and CHORALE_RANK_PROGRAM say
// where the programs are.
#include "program.hpp"
#include "two_hosts.hpp"

#include <boost/test/unit_test.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace chorale::tools_test;

running start(std::vector<std::string> prefix, const std::vector<std::string>& arguments) {
  prefix.push_back(variable("CHORALE_TOOL"));
  prefix.push_back("run");
  prefix.insert(prefix.end(), arguments.begin(), arguments.end());
  return start_program(std::move(prefix));
}

outcome run(std::vector<std::string> options, const std::vector<std::string>& program) {
  options.push_back("--");
  options.push_back(variable("CHORALE_RANK_PROGRAM"));
  options.insert(options.end(), program.begin(), program.end());
  return finish(start({}, options));
}

BOOST_AUTO_TEST_SUITE(running_jobs)

BOOST_AUTO_TEST_CASE(all_ranks_end_well) {
  for (const char* n : {"1", "2", "5"}) {
    const outcome o = run({"-n", n, "--tag-output"}, {"ok"});
    BOOST_TEST_CONTEXT(o.output) {
      BOOST_TEST(o.code == 0);
      BOOST_TEST(o.says(std::string{"[0] rank 0 of "} + n));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_killed_rank_is_reported_and_ends_the_job_within_a_second) {
  const outcome o = run({"-n", "4"}, {"kill", "2"});
  BOOST_TEST_CONTEXT(o.output) {
    BOOST_TEST(o.code == 137);
    BOOST_TEST(o.says("rank 2 (pid "));
    BOOST_TEST(o.says("was killed by signal 9 (SIGKILL)"));
    BOOST_TEST(o.says("3 other ranks were ended"));
    BOOST_TEST((o.took < milliseconds{3000}));  // starting included; a loaded machine too
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_ignore_sigterm_are_killed) {
  const outcome o = run({"-n", "3"}, {"stubborn", "1"});
  BOOST_TEST(o.code == 137);
  BOOST_TEST((o.took < milliseconds{4000}));
}

BOOST_AUTO_TEST_CASE(the_first_failing_rank_gives_the_exit_code) {
  const outcome o = run({"-n", "3", "--grace", "0"}, {"exit", "1", "42"});
  BOOST_TEST(o.code == 42);
  BOOST_TEST(o.says("exited with code 42"));
}

BOOST_AUTO_TEST_CASE(survivors_may_go_on) {
  for (const char* victim : {"0", "2"}) {
    const outcome o = run({"-n", "3", "--on-loss", "continue"}, {"reset", victim});
    BOOST_TEST_CONTEXT(o.output) {
      BOOST_TEST(o.code == 0);
      BOOST_TEST(o.says("rank 0 of 2, epoch 2, 1 mates"));
      BOOST_TEST(o.says("rank 1 of 2, epoch 2, 1 mates"));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_time_limit_ends_the_job) {
  const outcome o = run({"-n", "2", "--timeout", "0.5"}, {"wait"});
  BOOST_TEST(o.code == 124);
  BOOST_TEST(o.says("within 0.5 s (--timeout)"));
}

BOOST_AUTO_TEST_CASE(signals_are_passed_on) {
  running r = start({}, {"-n", "2", "--", variable("CHORALE_RANK_PROGRAM"), "wait"});
  outcome o;
  read_until(r, o, "rank 0 of 2");
  read_until(r, o, "rank 1 of 2");
  ::kill(r.pid, SIGTERM);
  o = finish(r, std::move(o));
  BOOST_TEST(o.code == 143);
}

BOOST_AUTO_TEST_CASE(ranks_end_with_their_launcher) {
  running r = start({}, {"-n", "2", "--", variable("CHORALE_RANK_PROGRAM"), "wait"});
  outcome o;
  read_until(r, o, "rank 0 of 2");
  read_until(r, o, "rank 1 of 2");
  ::kill(r.pid, SIGKILL);
  // The pipe reports its end only when the last rank has gone.
  o = finish(r, std::move(o));
  BOOST_TEST(o.code == 137);
  BOOST_TEST((o.took < milliseconds{5000}));
}

// The program of a rank may be a script's child: the script ends by a signal, and the program must not stay.
BOOST_AUTO_TEST_CASE(what_ranks_had_started_ends_with_the_job) {
  const std::string wrapped = "sh -c 'echo here; sleep 60'; true";
  const std::string left_behind = "sleep 60 & echo here; kill -9 $$";
  const std::string stubborn = "sh -c 'trap \"\" TERM; echo here; sleep 60; sleep 60'; true";
  for (const std::string& script : {wrapped, left_behind, stubborn}) {
    running r = start({}, {"-n", "1", "--", "sh", "-c", script});
    outcome o;
    read_until(r, o, "here");
    ::kill(r.pid, SIGTERM);
    o = finish(r, std::move(o));  // the pipe's end comes when nobody has it any more
    BOOST_TEST_CONTEXT(script << ": " << o.output) {
      BOOST_TEST(o.code != 0);
      BOOST_TEST(o.says("1 process that a rank had started was ended"));
      BOOST_TEST((o.took < milliseconds{5000}));
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_end_well_may_leave_processes_behind) {
  const outcome o = finish(start({}, {"-n", "1", "--", "sh", "-c", "(sleep 0.5; echo later) & true"}));
  BOOST_TEST(o.code == 0);
  BOOST_TEST(o.says("later"));
}

BOOST_AUTO_TEST_CASE(variables_reach_the_ranks) {
  const outcome o =
      finish(start({}, {"-n", "2", "--env", "GREETING=hello", "--env", "CHORALE_HOSTID=h", "--", "sh", "-c",
                        "echo $GREETING from $CHORALE_RANK of $CHORALE_SIZE at $CHORALE_HOSTID"}));
  BOOST_TEST(o.code == 0);
  BOOST_TEST(o.says("hello from 1 of 2 at h"));
}

BOOST_AUTO_TEST_CASE(each_run_has_its_own_secret) {
  const std::vector<std::string> show{"-n", "1", "--", "sh", "-c", "echo $CHORALE_SECRET"};
  const outcome first = finish(start({}, show));
  BOOST_TEST(first.output.size() == 65U);
  BOOST_TEST((finish(start({}, show)).output != first.output));
}

BOOST_AUTO_TEST_CASE(output_is_tagged_by_whole_lines) {
  const outcome o = finish(start(
      {}, {"-n", "2", "--tag-output", "--", "sh", "-c", "printf 'one '; printf 'line\\nand'; echo err >&2"}));
  BOOST_TEST(o.says("[0] one line\n"));
  BOOST_TEST(o.says("[1] and\n"));
  BOOST_TEST(o.says("[1] err\n"));
}

// `exec >&-` and a reader that goes away, as shells make them.
outcome in_a_shell(const std::string& script) {
  return finish(
      start_program({"bash", "-c", script, variable("CHORALE_TOOL"), variable("CHORALE_RANK_PROGRAM")}));
}

BOOST_AUTO_TEST_CASE(a_reader_that_goes_away_ends_ranks_as_without_tags) {
  for (const char* tags : {"", "--tag-output"}) {
    const outcome o = in_a_shell("\"$0\" run -n 1 " + std::string{tags} +
                                 " -- yes | head -n 1 >/dev/null; echo code ${PIPESTATUS[0]}");
    BOOST_TEST_CONTEXT(o.output) {
      BOOST_TEST(o.says("code 141"));
      BOOST_TEST((o.took < milliseconds{8000}));
    }
  }
}

BOOST_AUTO_TEST_CASE(closed_standard_streams_are_given_to_nobody_else) {
  const outcome o = in_a_shell(
      "\"$0\" run -n 1 -- sh -c 'one=$(readlink /proc/$$/fd/1); echo \"prints to $one\" >&2' 0<&- 1>&-");
  BOOST_TEST(o.code == 0);
  BOOST_TEST(o.says("prints to /dev/null"), o.output);
  BOOST_TEST(in_a_shell("\"$0\" run -n 2 --tag-output -- \"$1\" ok 0<&- 1>&- 2>&-").code == 0);
}

BOOST_AUTO_TEST_CASE(output_that_cannot_be_written_is_a_failure) {
  const outcome o = in_a_shell("\"$0\" --version >/dev/full; \"$0\" doctor >/dev/full");
  BOOST_TEST(o.code == 1);
  BOOST_TEST(o.says("standard output could not be written"));
}

BOOST_AUTO_TEST_CASE(binding_gives_each_rank_its_cpus) {
  const outcome o = finish(
      start({}, {"-n", "2", "--bind", "core", "--", "sh", "-c", "grep Cpus_allowed_list /proc/self/status"}));
  BOOST_TEST(o.code == 0);
  const auto first = o.output.find('\n');
  if (std::thread::hardware_concurrency() >= 2)
    BOOST_TEST((o.output.substr(0, first) != o.output.substr(first + 1, o.output.size() - first - 2)));
}

BOOST_AUTO_TEST_CASE(wrong_use_is_explained) {
  const auto with = [](std::vector<std::string> arguments) { return finish(start({}, arguments)); };
  const outcome no_program = with({"-n", "2", "--", "no-such-program-anywhere"});
  BOOST_TEST(no_program.code == 2);
  BOOST_TEST(no_program.says("found neither in PATH nor beside"));
  const outcome no_root = with({"-n", "1", "--nodes", "2", "--", "true"});
  BOOST_TEST(no_root.code == 2);
  BOOST_TEST(no_root.says("--root"));
  const outcome bad_node =
      with({"-n", "1", "--nodes", "2", "--node", "2", "--root", "127.0.0.1:9", "--", "true"});
  BOOST_TEST(bad_node.says("--node 2 does not exist"));
  BOOST_TEST(with({"-n", "2", "--", "./no/such/program"}).says("there is no ./no/such/program"));
  BOOST_TEST(with({"-n", "0", "--", "true"}).code == 2);
  BOOST_TEST(with({"--", "true"}).code == 2);
  BOOST_TEST(with({"-n", "1", "--no-such-option", "--", "true"}).code == 2);
  BOOST_TEST(in_a_shell("\"$0\"").code == 2);
  const outcome no_command = in_a_shell("\"$0\" walk");
  BOOST_TEST(no_command.code == 2);
  BOOST_TEST(no_command.says("there is no \"walk\" here"));
  BOOST_TEST(with({"--help"}).says("Examples:"));
}

// Several hosts.

running node(const two_hosts& hosts, int i, std::vector<std::string> program,
             std::vector<std::string> options = {}) {
  std::vector<std::string> arguments{"-n",      "2",
                                     "--nodes", "2",
                                     "--node",  std::to_string(i),
                                     "--root",  "10.77.0.1:7301",
                                     "--env",   "CHORALE_BOOTSTRAP_TIMEOUT=20"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.push_back("--");
  arguments.push_back(variable("CHORALE_RANK_PROGRAM"));
  arguments.insert(arguments.end(), program.begin(), program.end());
  return start(hosts.command_on(i, {"env", "CHORALE_SECRET=shared by both nodes"}), arguments);
}

BOOST_AUTO_TEST_CASE(two_nodes, *boost::unit_test::precondition(namespaces_work)) {
  const two_hosts hosts;
  const running second = node(hosts, 1, {"ok"});
  const running first = node(hosts, 0, {"ok"});
  const outcome a = finish(first);
  const outcome b = finish(second);
  BOOST_TEST_CONTEXT(a.output << b.output) {
    BOOST_TEST(a.code == 0);
    BOOST_TEST(b.code == 0);
    // One boot id, but descriptors do not pass between the namespaces: mates only within each.
    BOOST_TEST(a.says("rank 0 of 4, epoch 1, 1 mates, 2 data sockets"));
    BOOST_TEST(b.says("rank 3 of 4, epoch 1, 1 mates, 2 data sockets"));
  }
}

BOOST_AUTO_TEST_CASE(two_nodes_by_a_chosen_interface, *boost::unit_test::precondition(namespaces_work)) {
  const two_hosts hosts;
  const running second = node(hosts, 1, {"ok"}, {"--env", "CHORALE_SOCKET_IFNAME=br7,vb"});
  const running first = node(hosts, 0, {"ok"}, {"--env", "CHORALE_SOCKET_IFNAME=br7,va"});
  BOOST_TEST(finish(first).code == 0);
  BOOST_TEST(finish(second).code == 0);
}

BOOST_AUTO_TEST_CASE(a_loss_on_one_node_ends_the_other, *boost::unit_test::precondition(namespaces_work)) {
  for (const char* victim : {"1", "3"}) {
    const two_hosts hosts;
    const running second = node(hosts, 1, {"kill", victim});
    const running first = node(hosts, 0, {"kill", victim});
    const outcome a = finish(first);
    const outcome b = finish(second);
    BOOST_TEST_CONTEXT(a.output << b.output) {
      BOOST_TEST(a.code != 0);
      BOOST_TEST(b.code != 0);
      BOOST_TEST((victim[0] == '1' ? b : a).says(std::string{"rank "} + victim + " on node"));
      BOOST_TEST((victim[0] == '1' ? a : b).says("was killed by signal 9"));
    }
  }
}

BOOST_AUTO_TEST_CASE(survivors_on_two_nodes_go_on, *boost::unit_test::precondition(namespaces_work)) {
  const two_hosts hosts;
  const running second = node(hosts, 1, {"reset", "3"}, {"--on-loss", "continue"});
  const running first = node(hosts, 0, {"reset", "3"}, {"--on-loss", "continue"});
  const outcome a = finish(first);
  const outcome b = finish(second);
  BOOST_TEST_CONTEXT(a.output << b.output) {
    BOOST_TEST(a.code == 0);
    BOOST_TEST(b.code == 0);
    BOOST_TEST(b.says("rank 2 of 3, epoch 2"));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
