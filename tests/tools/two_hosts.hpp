// Two hosts as far as sockets can tell: network namespaces joined by a veth pair, 10.77.0.1 and 10.77.0.2.
// Made and removed by the test, which must be root; file systems, processes and the boot id stay shared.
#pragma once

#include <boost/test/unit_test.hpp>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace chorale::tools_test {

inline int shell(const std::string& command) {
  return std::system(("(" + command + ") >/dev/null 2>&1").c_str());
}

inline boost::test_tools::assertion_result namespaces_work(boost::unit_test::test_unit_id) {
  if (::geteuid() == 0 && shell("ip netns add chorale-probe") == 0 &&
      shell("ip netns exec chorale-probe true; usable=$?; ip netns del chorale-probe && exit $usable") == 0)
    return true;
  boost::test_tools::assertion_result no{false};
  no.message() << "network namespaces need root and the ip command";
  return no;
}

struct two_hosts {
  two_hosts() {
    const std::string id = std::to_string(::getpid());
    names = {"chorale-a" + id, "chorale-b" + id};
    (void)shell("ip netns add " + names[0] + " && ip netns add " + names[1]);
    (void)shell("ip link add va netns " + names[0] + " type veth peer name vb netns " + names[1]);
    for (int i = 0; i < 2; ++i) {
      const std::string in = "ip -n " + names[static_cast<std::size_t>(i)] + " ";
      const std::string device = i == 0 ? "va" : "vb";
      (void)shell(in + "addr add 10.77.0." + std::to_string(i + 1) + "/24 dev " + device);
      // The same address on both hosts, as the bridges of container runtimes have it: nobody is reached
      // there.
      (void)shell(in + "link add br7 type veth peer name br7x && " + in +
                  "addr add 172.17.0.1/16 dev br7 && " + in + "link set br7 up && " + in +
                  "link set br7x up");
      (void)shell(in + "link set lo up");
      (void)shell(in + "link set " + device + " up");
    }
  }
  two_hosts(const two_hosts&) = delete;
  two_hosts& operator=(const two_hosts&) = delete;
  ~two_hosts() {
    for (const std::string& name : names) (void)shell("ip netns del " + name);
  }
  /// The command, as it is run on host `i`, 0 or 1, whose address is 10.77.0.1 or .2.
  [[nodiscard]] std::vector<std::string> command_on(int i, std::vector<std::string> command) const {
    const std::string& name = names[static_cast<std::size_t>(i)];
    command.insert(command.begin(), {"ip", "netns", "exec", name});
    return command;
  }

  std::array<std::string, 2> names;  ///< of the namespaces
};

}  // namespace chorale::tools_test
