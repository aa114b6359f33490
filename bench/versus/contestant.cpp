#include "contestant.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string_view>

extern char** environ;

namespace chorale::bench::versus {
namespace {

constexpr duration to_end = std::chrono::seconds{5};

std::string with_folder(std::string argument, const std::string& folder) {
  constexpr std::string_view name = "FOLDER";
  if (const std::size_t at = argument.find(name); at != std::string::npos)
    argument.replace(at, name.size(), folder);
  return argument;
}

int milliseconds_until(time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - steady_now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

/// Whether the process ended by then.
bool ended_by(pid_t process, time_point end) {
  const unique_fd watched{static_cast<int>(::syscall(SYS_pidfd_open, process, 0))};
  if (watched) {
    pollfd waiting{watched.get(), POLLIN, 0};
    while (::poll(&waiting, 1, milliseconds_until(end)) < 0 && errno == EINTR) continue;
  }
  return ::waitpid(process, nullptr, WNOHANG) != 0;
}

result<pid_t> spawn(const std::vector<std::string>& command, const std::string& folder, int input,
                    int output) {
  std::vector<std::string> words;
  words.reserve(command.size());
  for (const std::string& word : command) words.push_back(with_folder(word, folder));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (input >= 0)
    ::posix_spawn_file_actions_adddup2(&actions, input, 0);
  else
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t process = -1;
  const int failed = ::posix_spawnp(&process, arguments[0], &actions, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return error::from_os(failed, "starting " + words[0]);
  return process;
}

}  // namespace

result<void> contestant::make_folder() {
  std::string path = (std::filesystem::temp_directory_path() / "chorale-bench-XXXXXX").string();
  if (!::mkdtemp(path.data())) return error::from_os(errno, "mkdtemp " + path);
  folder_ = path;
  for (int rank = 0; rank < plan_.fifos; ++rank) {
    const std::string fifo = folder_ + "/" + std::to_string(rank);
    if (::mkfifo(fifo.c_str(), 0600) != 0) return error::from_os(errno, "mkfifo " + fifo);
    // Open for reading as well, so that opening does not wait for the reader; it gets its end all the same.
    unique_fd end{::open(fifo.c_str(), O_RDWR | O_CLOEXEC)};
    if (!end) return error::from_os(errno, "open " + fifo);
    inputs_.push_back(std::move(end));
  }
  return {};
}

result<void> contestant::start_processes() {
  std::array<int, 2> answers{};
  if (::pipe2(answers.data(), O_CLOEXEC) != 0) return error::from_os(errno, "pipe2");
  output_ = unique_fd{answers[0]};
  const unique_fd answering{answers[1]};
  unique_fd reading;
  if (plan_.fifos == 0) {
    std::array<int, 2> commands{};
    if (::pipe2(commands.data(), O_CLOEXEC) != 0) return error::from_os(errno, "pipe2");
    reading = unique_fd{commands[0]};
    inputs_.emplace_back(commands[1]);
  }
  for (const auto& command : plan_.commands) {
    auto started = spawn(command, folder_, reading ? reading.get() : -1, answering.get());
    if (!started) return std::move(started).error();
    processes_.push_back(*started);
  }
  return {};
}

result<std::unique_ptr<contestant>> contestant::start(const contestant_plan& plan, duration patience) {
  std::unique_ptr<contestant> made{new contestant{plan}};
  if (auto ok = made->make_folder(); !ok) return std::move(ok).error();
  if (auto ok = made->start_processes(); !ok) return std::move(ok).error();
  auto ready = made->answer(patience);
  if (!ready) return std::move(ready).error();
  constexpr std::string_view greeting = "ready ";
  if (!ready->starts_with(greeting))
    return error{errc::protocol_error, plan.label() + " began with \"" + *ready + "\", not with ready"};
  made->name_ = ready->substr(greeting.size());
  made->remove_folder();  // all have opened and met: nothing in it is needed any more
  return made;
}

contestant::~contestant() {
  inputs_.clear();
  const time_point end = steady_now() + to_end;
  for (const pid_t process : processes_) {
    if (ended_by(process, end)) continue;
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
  remove_folder();
}

void contestant::remove_folder() noexcept {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  folder_.clear();
}

result<std::string> contestant::ask(const std::string& command, duration patience) {
  const std::string line = command + "\n";
  for (const unique_fd& input : inputs_)
    if (::write(input.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      return error{errc::peer_lost, plan_.label() + " does not take commands any more"};
  auto said = answer(patience);
  constexpr std::string_view refusal = "no ";
  if (said && said->starts_with(refusal))
    return error{errc::unsupported, plan_.label() + " refused: " + said->substr(refusal.size())};
  return said;
}

result<std::string> contestant::answer(duration patience) {
  const time_point end = steady_now() + patience;
  for (;;) {
    while (unread_.find('\n') != std::string::npos) {
      const std::size_t length = unread_.find('\n');
      const std::string line = unread_.substr(0, length);
      unread_.erase(0, length + 1);
      if (line.starts_with("= ")) return line.substr(2);
    }
    pollfd waiting{output_.get(), POLLIN, 0};
    const int some = ::poll(&waiting, 1, milliseconds_until(end));
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0)
      return error{errc::timed_out,
                   plan_.label() + " did not answer within " +
                       std::to_string(std::chrono::duration_cast<std::chrono::seconds>(patience).count()) +
                       " s"};
    std::array<char, 4096> buffer{};
    const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
    if (got <= 0) return error{errc::peer_lost, plan_.label() + " has ended; what it wrote above says why"};
    unread_.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace chorale::bench::versus
