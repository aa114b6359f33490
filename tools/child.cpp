#include "child.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

extern char** environ;

namespace chorale::tools {
namespace {

struct pipe_ends {
  unique_fd read;
  unique_fd write;
};

result<pipe_ends> make_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return error::from_os(errno, "pipe2");
  return pipe_ends{unique_fd{fds[0]}, unique_fd{fds[1]}};
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;
  for (char** v = environ; *v; ++v) {
    const std::string_view variable{*v};
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    bool replaced = false;
    for (const std::string& a : added) replaced = replaced || a.starts_with(name);
    if (!replaced) all.emplace_back(variable);
  }
  return all;
}

// Everything the new process needs, gathered before fork: between fork and exec only async-signal-safe calls.
struct launch {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const cpu_set_t* cpus;
  int input = -1;
  int output = -1;
  int errors = -1;
  int report = -1;
  pid_t launcher = 0;
};

[[noreturn]] void become(const launch& l) noexcept {
  const auto give_up = [&] {
    const int why = errno;
    (void)!::write(l.report, &why, sizeof why);
    ::_exit(127);
  };
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != l.launcher) ::_exit(127);  // the launcher ended in between
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  if (l.cpus) ::sched_setaffinity(0, sizeof *l.cpus, l.cpus);
  if (l.input >= 0 && ::dup2(l.input, 0) < 0) give_up();
  if (l.output >= 0 && ::dup2(l.output, 1) < 0) give_up();
  if (l.errors >= 0 && ::dup2(l.errors, 2) < 0) give_up();
  ::execve(l.program, l.arguments, l.environment);
  give_up();
  ::_exit(127);
}

std::string signal_name(int number) {
  const char* const abbreviation = ::sigabbrev_np(number);
  return abbreviation ? "SIG" + std::string{abbreviation} : "an unnamed signal";
}

bool executable(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

bool child::was_killed() const noexcept { return !running && WIFSIGNALED(status); }

int child::exit_code() const noexcept {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string child::describe_end() const {
  std::string text = "rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + ") ";
  if (!WIFSIGNALED(status)) return text + "exited with code " + std::to_string(WEXITSTATUS(status));
  text +=
      "was killed by signal " + std::to_string(WTERMSIG(status)) + " (" + signal_name(WTERMSIG(status)) + ")";
  return WCOREDUMP(status) ? text + ", core dumped" : text;
}

void child::signal(int number) noexcept {
  if (!running) return;
  told_to_end = true;
  ::kill(pid, number);
}

result<child> start_child(rank_t rank, const child_options& options) {
  auto report = make_pipe();
  if (!report) return std::move(report).error();
  pipe_ends output;
  pipe_ends errors;
  if (options.pipe_output) {
    auto out = make_pipe();
    if (!out) return std::move(out).error();
    auto err = make_pipe();
    if (!err) return std::move(err).error();
    output = *std::move(out);
    errors = *std::move(err);
    ::fcntl(output.read.get(), F_SETFL, O_NONBLOCK);
    ::fcntl(errors.read.get(), F_SETFL, O_NONBLOCK);
  }
  const unique_fd nothing{options.keep_input ? -1 : ::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  std::vector<std::string> arguments{options.program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = merged_environment(options.variables);
  const std::vector<char*> argument_pointers = pointers_to(arguments);
  const std::vector<char*> environment_pointers = pointers_to(environment);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : options.cpus) CPU_SET(static_cast<std::size_t>(cpu), &cpus);

  launch l{options.program.c_str(), argument_pointers.data(), environment_pointers.data(),
           options.cpus.empty() ? nullptr : &cpus};
  l.input = nothing.get();
  l.output = output.write.get();
  l.errors = errors.write.get();
  l.report = report->write.get();
  l.launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return error::from_os(errno, "fork for rank " + std::to_string(rank));
  if (pid == 0) become(l);

  report->write.reset();
  int why = 0;
  ssize_t got = 0;
  do got = ::read(report->read.get(), &why, sizeof why);
  while (got < 0 && errno == EINTR);
  if (got == sizeof why) {
    ::waitpid(pid, nullptr, 0);
    return error::from_os(why, "can not execute " + options.program);
  }
  child started;
  started.rank = rank;
  started.pid = pid;
  started.output = std::move(output.read);
  started.errors = std::move(errors.read);
  started.running = true;
  return started;
}

result<std::string> find_program(const std::string& name) {
  namespace fs = std::filesystem;
  if (name.find('/') != std::string::npos) {
    if (executable(name)) return name;
    const bool there = ::access(name.c_str(), F_OK) == 0;
    return error{errc::invalid_argument,
                 there ? name + " is not an executable file" : "there is no " + name + "; was it built?"};
  }
  const char* const path = std::getenv("PATH");
  std::string_view rest = path ? path : "/usr/bin:/bin";
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    const fs::path candidate = fs::path{rest.substr(0, colon)} / name;
    if (colon != 0 && executable(candidate)) return candidate.string();
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const char* folder : {".", "../examples", "../bench", "../bench/peers"}) {
    for (const fs::path& candidate : {here / folder / name, here / folder / name / name})
      if (executable(candidate)) return candidate.lexically_normal().string();
  }
  return error{errc::invalid_argument, "\"" + name + "\" was found neither in PATH nor beside " +
                                           (here / "chorale").string() + "; give its path"};
}

}  // namespace chorale::tools
