// One rank's process as `chorale run` sees it: started with its variables, its output piped or inherited,
// reaped.
//
// The child gets SIGKILL when the launcher ends, whatever ends it. Owned by the launcher's thread.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/transport/socket.hpp>

#include <sys/types.h>

#include <string>
#include <vector>

namespace chorale::tools {

struct child_options {
  std::string program;  ///< a path
  std::vector<std::string> arguments;
  std::vector<std::string> variables;  ///< "NAME=value", on top of the launcher's own
  std::vector<int> cpus;               ///< empty: wherever the launcher may run
  bool pipe_output = false;
  bool keep_input = false;  ///< otherwise stdin is /dev/null
};

struct child {
  rank_t rank = no_rank;
  pid_t pid = -1;
  unique_fd output;  ///< read ends, non-blocking; empty unless piped
  unique_fd errors;
  bool running = false;
  bool told_to_end = false;  ///< a signal of ours is on its way
  int status = 0;            ///< of waitpid, once not running

  [[nodiscard]] bool failed() const noexcept { return !running && status != 0; }
  [[nodiscard]] bool was_killed() const noexcept;
  /// The code a shell would report: 128 + signal, or the exit code.
  [[nodiscard]] int exit_code() const noexcept;
  /// "rank 2 (pid 123) was killed by signal 9 (SIGKILL)"
  [[nodiscard]] std::string describe_end() const;
  void signal(int number) noexcept;
};

/// errc::system_error, naming the program, when it can not be executed.
[[nodiscard]] result<child> start_child(rank_t rank, const child_options& options);

/// The program's path: as given when it has a slash, else from PATH, else beside this executable (and in the
/// examples' and benchmarks' folders of a build tree).
[[nodiscard]] result<std::string> find_program(const std::string& name);

}  // namespace chorale::tools
