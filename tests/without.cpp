// without CALL... -- PROGRAM ARGUMENT...: becomes the program, which can not make those system calls and
// finds their names in CHORALE_TEST_FORBIDDEN.
#include "forbidden_calls.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

int main(int argc, char** argv) try {
  std::vector<std::string> calls;
  int program = 1;
  for (; program < argc && std::string_view{argv[program]} != "--"; ++program)
    calls.emplace_back(argv[program]);
  if (calls.empty() || program + 1 >= argc) {
    std::fprintf(stderr, "usage: without CALL... -- PROGRAM ARGUMENT...\n");
    return 2;
  }
  std::string all;
  for (const std::string& call : calls) all += call + " ";
  ::setenv("CHORALE_TEST_FORBIDDEN", all.c_str(), 1);
  chorale::testing::forbid_calls(calls);
  ::execvp(argv[program + 1], argv + program + 1);
  std::perror(argv[program + 1]);
  return 127;
} catch (const std::exception& e) {
  std::fprintf(stderr, "without: %s\n", e.what());
  return 126;
}
