// The command line of digits, and the help that explains what the run shows.
#pragma once

#include "trainer.hpp"

#include <filesystem>
#include <optional>

namespace digits {

struct options {
  plan training;
  std::filesystem::path data;
  std::size_t test_count = 297;
};

/// The options, or the exit code of a run that ends here: 0 after --help, not 0 after a mistake (already
/// told).
struct parsed {
  std::optional<options> wanted;
  int exit_code = 0;
};
[[nodiscard]] parsed parse_command_line(int argc, char** argv);

}  // namespace digits
