// Programs as their users start them: exit code, output, time. For the test's thread; `finish` reaps what
// `start_program` started.
#pragma once

#include <boost/test/unit_test.hpp>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::tools_test {

using std::chrono::milliseconds;
using moment = std::chrono::steady_clock::time_point;

struct outcome {
  int code = -1;
  std::string output;  // both streams
  milliseconds took{};
  [[nodiscard]] bool says(std::string_view text) const { return output.find(text) != std::string::npos; }
};

inline std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  BOOST_TEST_REQUIRE(value, name << " is not set; run this through meson test");
  return value;
}

struct running {
  pid_t pid;
  int output;
  moment started;
};

inline running start_program(std::vector<std::string> command) {
  std::array<int, 2> ends{};
  BOOST_TEST_REQUIRE(::pipe(ends.data()) == 0);
  std::vector<char*> pointers;
  for (std::string& c : command) pointers.push_back(c.data());
  pointers.push_back(nullptr);
  const moment started = std::chrono::steady_clock::now();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    ::close(ends[0]);
    ::close(ends[1]);
    ::execvp(pointers[0], pointers.data());
    ::_exit(99);
  }
  ::close(ends[1]);
  return {pid, ends[0], started};
}

// Reads until `text` came, the end, or ten seconds.
inline void read_until(running& r, outcome& o, std::string_view text) {
  std::array<char, 4096> buffer{};
  while (!o.says(text)) {
    pollfd waiting{r.output, POLLIN, 0};
    if (::poll(&waiting, 1, 10'000) <= 0) return;
    const ssize_t got = ::read(r.output, buffer.data(), buffer.size());
    if (got <= 0) return;
    o.output.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

inline outcome finish(running r, outcome o = {}) {
  read_until(r, o, std::string_view{"\0never", 6});
  int status = 0;
  ::waitpid(r.pid, &status, 0);
  o.took = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - r.started);
  o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ::close(r.output);
  return o;
}

}  // namespace chorale::tools_test
