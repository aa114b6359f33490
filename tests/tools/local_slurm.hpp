// A Slurm of two nodes on this host: munged, slurmctld and two slurmd, on loopback, in a temporary folder,
// with a configuration and a key of their own; a Slurm that this host belongs to is not touched. Needs root.
// The daemons end with this object, by their process ids, and with the test, however it ends.
#pragma once

#include "program.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::tools_test {

/// Whether the programs and the right to start them are here.
boost::test_tools::assertion_result slurm_is_here(boost::unit_test::test_unit_id);

class local_slurm {
 public:
  /// Returns when both nodes are idle. Throws std::runtime_error with the daemons' last words when they are
  /// not after 15 seconds.
  local_slurm();
  local_slurm(const local_slurm&) = delete;
  local_slurm& operator=(const local_slurm&) = delete;
  ~local_slurm();

  /// `srun ARGUMENTS`, ended after 25 seconds.
  [[nodiscard]] outcome srun(const std::vector<std::string>& arguments) const;

 private:
  struct daemon {
    std::string name;
    pid_t pid;
  };
  void configure() const;
  void start(const std::string& name, std::vector<std::string> command);
  void end(daemon& d) const noexcept;
  void end_all() noexcept;
  template <class Condition>
  void wait_until(Condition holds, std::string_view what) const;
  [[nodiscard]] std::vector<std::string> with_configuration(std::vector<std::string> command) const;
  [[nodiscard]] std::string last_words() const;

  std::filesystem::path folder_;
  std::vector<daemon> daemons_;  // in the order of their start
};

/// Ports of loopback that nobody listened on a moment ago, all different.
std::vector<int> free_ports(std::size_t count);

}  // namespace chorale::tools_test
