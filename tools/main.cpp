#include "commands.hpp"

#include <CLI/CLI.hpp>

int main(int argc, char** argv) {
  CLI::App app{"chorale: collective communication for C++ coroutines, on hosts and GPUs"};
  app.require_subcommand(1);
  app.set_version_flag("--version", CHORALE_VERSION);
  app.footer("Each command explains itself: chorale run --help");
  int exit_code = 0;
  chorale::tools::add_run_command(app, exit_code);
  chorale::tools::add_bench_command(app, exit_code, argc, argv);
  chorale::tools::add_doctor_command(app, exit_code);
  CLI11_PARSE(app, argc, argv);
  return exit_code;
}
