#include "rig.hpp"
#include <chorale/async/backend.hpp>

#include <sys/resource.h>

#include <cstdlib>
#include <string_view>

namespace {

using namespace chorale;
using namespace chorale::testing;

struct no_variable {
  no_variable() { ::unsetenv("CHORALE_BACKEND"); }
  ~no_variable() { ::unsetenv("CHORALE_BACKEND"); }
};

std::string_view chosen(backend_kind kind) {
  auto made = make_backend(kind);
  BOOST_REQUIRE(made);
  return (*made)->name();
}

BOOST_FIXTURE_TEST_SUITE(backend_choice, no_variable)

BOOST_AUTO_TEST_CASE(automatic_takes_io_uring_where_it_works) {
  BOOST_TEST(chosen(backend_kind::automatic) == (make_io_uring_backend() ? "io_uring" : "epoll"));
}

BOOST_AUTO_TEST_CASE(the_environment_decides_what_the_program_left_open) {
  ::setenv("CHORALE_BACKEND", "epoll", 1);
  BOOST_TEST(chosen(backend_kind::automatic) == "epoll");
  if (make_io_uring_backend()) BOOST_TEST(chosen(backend_kind::io_uring) == "io_uring");
  ::setenv("CHORALE_BACKEND", "io_uring", 1);
  BOOST_TEST(chosen(backend_kind::epoll) == "epoll");
  ::setenv("CHORALE_BACKEND", "auto", 1);
  BOOST_TEST(!chosen(backend_kind::automatic).empty());
}

BOOST_AUTO_TEST_CASE(an_unknown_name_is_explained) {
  ::setenv("CHORALE_BACKEND", "kqueue", 1);
  const auto made = make_backend(backend_kind::automatic);
  BOOST_REQUIRE(!made);
  BOOST_TEST((made.error() == errc::invalid_argument));
  BOOST_TEST(made.error().message().find("kqueue") != std::string::npos);
}

/// Makes a backend with no more than `left` fds to be had; nothing is checked meanwhile, because checks (and
/// sanitizers) need fds too.
result<std::unique_ptr<backend>> make_with_few_files(backend_kind kind, std::size_t left) {
  std::vector<file> all;
  for (file next{::dup(0)}; next >= 0; next = file{::dup(0)}) all.push_back(std::move(next));
  all.resize(all.size() - left);
  return make_backend(kind);
}

BOOST_AUTO_TEST_CASE(too_many_open_files_are_an_error_and_not_a_crash) {
  rlimit before{};
  BOOST_REQUIRE_EQUAL(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 64, .rlim_max = before.rlim_max};
  BOOST_REQUIRE_EQUAL(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<result<std::unique_ptr<backend>>> made;
  for (const auto kind : {backend_kind::automatic, backend_kind::epoll})
    for (std::size_t left = 0; left < 5; ++left) made.push_back(make_with_few_files(kind, left));
  ::setrlimit(RLIMIT_NOFILE, &before);
  BOOST_TEST(!made.front());
  for (const auto& one : made)
    if (!one)
      BOOST_TEST(one.error().message().find("open files") != std::string::npos, one.error().message());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
