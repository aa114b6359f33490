// Runs this test program again in a sandbox that forbids io_uring, as many container runtimes do.
#include "forbidden_calls.hpp"
#include "rig.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

namespace {

using namespace chorale;
using namespace chorale::testing;

constexpr const char* marker = "CHORALE_TEST_FORBIDDEN_CALL";

/// In a child: forbids one call for good and becomes this program with the suites that need a backend.
[[noreturn]] void run_suites_without(const char* name) {
  try {
    forbid_calls({name});
  } catch (const std::exception&) {
    ::_exit(3);
  }
  ::setenv(marker, name, 1);
  ::execl("/proc/self/exe", "async_tests",
          "--run_test=backend_conformance,backend_choice,engines,awaiting_the_kernel,sandbox",
          "--report_level=no", static_cast<char*>(nullptr));
  ::_exit(4);
}

int status_without(const char* name) {
  const pid_t child = ::fork();
  if (child == 0) run_suites_without(name);
  int status = 0;
  BOOST_REQUIRE_EQUAL(::waitpid(child, &status, 0), child);
  BOOST_REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

BOOST_AUTO_TEST_SUITE(sandbox)

BOOST_AUTO_TEST_CASE(inside_one_io_uring_is_refused_with_advice) {
  if (!std::getenv(marker)) return;
  const auto made = make_io_uring_backend();
  BOOST_REQUIRE(!made);
  BOOST_TEST((made.error() == errc::unsupported));
  // The text names the call that this machine refused first.
  BOOST_TEST(made.error().message().find("io_uring_") != std::string::npos, made.error().message());
  BOOST_TEST(made.error().message().find("epoll") != std::string::npos);
  BOOST_TEST(make_backend(backend_kind::automatic).value()->name() == "epoll");
}

BOOST_AUTO_TEST_CASE(everything_works_without_io_uring_setup) {
  if (std::getenv(marker)) return;
  BOOST_TEST(status_without("io_uring_setup") == 0);
}

BOOST_AUTO_TEST_CASE(a_ring_that_can_be_made_but_not_used_is_not_used) {
  if (std::getenv(marker)) return;
  BOOST_TEST(status_without("io_uring_enter") == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
