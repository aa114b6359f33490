#include "commands.hpp"

#include <CLI/CLI.hpp>
#include <fcntl.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr int wrong_options = 2;

/// A standard descriptor that is closed would become some socket's, and what is printed would be sent there.
bool standard_streams_are_open() {
  int fd = 0;
  do fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= 2);
  if (fd < 0) return false;
  ::close(fd);
  return true;
}

/// Says what is wrong with the command line; 0 where help or the version was asked for.
int explain(const CLI::App& app, const CLI::ParseError& fault) {
  if (fault.get_exit_code() == 0) return app.exit(fault);
  const std::vector<std::string> left = app.remaining(true);
  if (dynamic_cast<const CLI::RequiredError*>(&fault) && !left.empty() && !left.front().starts_with("-"))
    std::fprintf(stderr, "there is no \"%s\" here\n", left.front().c_str());
  app.exit(fault);
  return wrong_options;
}

/// What was printed may not have arrived: a full disk says so only now.
bool output_was_written() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

}  // namespace

int main(int argc, char** argv) {
  if (!standard_streams_are_open()) return wrong_options;
  CLI::App app{"chorale: collective communication for C++ coroutines, on hosts and GPUs"};
  app.require_subcommand(1);
  app.set_version_flag("--version", CHORALE_VERSION);
  app.footer("Each command explains itself: chorale run --help");
  int exit_code = 0;
  chorale::tools::add_run_command(app, exit_code);
  chorale::tools::add_bench_command(app, exit_code, argc, argv);
  chorale::tools::add_doctor_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& fault) {
    return explain(app, fault);
  }
  if (output_was_written()) return exit_code;
  std::fputs("chorale: standard output could not be written; is the disk full?\n", stderr);
  return exit_code == 0 ? 1 : exit_code;
}
