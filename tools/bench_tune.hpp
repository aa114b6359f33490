// `chorale bench tune`.
#pragma once

namespace CLI {
class App;
}

namespace chorale::tools {

void add_tune(CLI::App& bench, int& exit_code);

}  // namespace chorale::tools
