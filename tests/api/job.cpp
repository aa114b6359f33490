#include "job.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <vector>

namespace chorale::testing {
namespace {

task<void> live(const rank_body& body) {
  task<communicator> joining = communicator::join();
  communicator comm = co_await std::move(joining);
  task<void> living = body(comm);
  co_await std::move(living);
}

/// Ends the process. What went wrong goes to `report`.
[[noreturn]] void be_rank(rank_t rank, const job_options& options, const std::string& root,
                          const std::function<void()>& life, int report) {
  ::setenv("CHORALE_RANK", std::to_string(rank).c_str(), 1);
  ::setenv("CHORALE_SIZE", std::to_string(options.ranks).c_str(), 1);
  ::setenv("CHORALE_ROOT", root.c_str(), 1);
  ::setenv("CHORALE_TRANSPORT", options.transport.c_str(), 1);
  ::alarm(60);
  int code = 0;
  try {
    life();
  } catch (const std::exception& e) {
    const std::string text = "rank " + std::to_string(rank) + ": " + e.what() + "\n";
    static_cast<void>(!::write(report, text.data(), text.size()));
    code = 1;
  }
  ::_exit(code);
}

std::string read_all(int fd) {
  std::string text(static_cast<std::size_t>(::lseek(fd, 0, SEEK_END)), '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

}  // namespace

std::string run_ranks(const job_options& options, const std::function<void()>& life) {
  static int jobs = 0;
  const std::string root =
      "unix:@chorale-api-test-" + std::to_string(::getpid()) + "-" + std::to_string(jobs++);
  const int report = ::memfd_create("report", MFD_CLOEXEC);
  std::vector<pid_t> ranks;
  for (rank_t r = 0; r < options.ranks; ++r) {
    const pid_t pid = ::fork();
    if (pid == 0) be_rank(r, options, root, life, report);
    ranks.push_back(pid);
  }
  std::string wrong;
  for (rank_t r = 0; r < options.ranks; ++r) {
    int status = 0;
    ::waitpid(ranks[static_cast<std::size_t>(r)], &status, 0);
    if (WIFSIGNALED(status) && r != options.killed)
      wrong +=
          "rank " + std::to_string(r) + " was killed by signal " + std::to_string(WTERMSIG(status)) + "\n";
    if (WIFEXITED(status) && WEXITSTATUS(status) > 1)
      wrong += "rank " + std::to_string(r) + " exited with " + std::to_string(WEXITSTATUS(status)) + "\n";
  }
  wrong += read_all(report);
  ::close(report);
  return wrong;
}

std::string run_job(const job_options& options, const rank_body& body) {
  return run_ranks(options, [&] {
    engine loop;
    loop.run(live(body));
  });
}

}  // namespace chorale::testing
