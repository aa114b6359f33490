// The subcommands of `chorale`. Each function adds one to the app; the callback of the one that was chosen
// sets `exit_code`. To add another: write its file, declare it here, call it in main.cpp.
#pragma once

namespace CLI {
class App;
}

namespace chorale::tools {

void add_run_command(CLI::App& app, int& exit_code);
void add_doctor_command(CLI::App& app, int& exit_code);
/// The arguments of the program are for ranks that the command starts itself.
void add_bench_command(CLI::App& app, int& exit_code, int argc, char** argv);

}  // namespace chorale::tools
