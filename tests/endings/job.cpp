#include "job.hpp"

#include "child_end.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <new>
#include <stdexcept>
#include <utility>

extern char** environ;

namespace endings {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

bool shell(const std::string& command) {
  return std::system(("(" + command + ") >/dev/null 2>&1").c_str()) == 0;
}

}  // namespace

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

shared_board::shared_board(const plan& what) : fd_{::memfd_create("endings", 0)} {
  if (fd_ < 0 || ::ftruncate(fd_, sizeof(board)) != 0) throw std::runtime_error{"memfd_create"};
  void* const memory = ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) throw std::runtime_error{"mmap"};
  board_ = ::new (memory) board;
  board_->what = what;
  ::sem_init(&board_->working, 1, 0);
  ::sem_init(&board_->survived, 1, 0);
  ::sem_init(&board_->timed_out, 1, 0);
  for (sem_t& s : board_->together) ::sem_init(&s, 1, 0);
}

shared_board::~shared_board() {
  ::munmap(board_, sizeof(board));
  ::close(fd_);
}

job::job(const std::vector<std::string>& command, const std::vector<std::string>& variables)
    : output_{::memfd_create("output", MFD_CLOEXEC)} {
  std::vector<std::string> all = variables;
  for (char** v = environ; *v; ++v) all.emplace_back(*v);
  posix_spawn_file_actions_t streams;
  ::posix_spawn_file_actions_init(&streams);
  ::posix_spawn_file_actions_addopen(&streams, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&streams, output_, 1);
  ::posix_spawn_file_actions_adddup2(&streams, output_, 2);
  auto arguments = pointers_to(command);
  auto environment = pointers_to(all);
  const int failed =
      ::posix_spawnp(&pid_, arguments[0], &streams, nullptr, arguments.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&streams);
  if (failed != 0) throw std::runtime_error{"cannot start " + command[0]};
}

job::job(job&& other) noexcept
    : pid_{std::exchange(other.pid_, -1)},
      output_{std::exchange(other.output_, -1)},
      ended_at_{other.ended_at_} {}

job::~job() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (output_ >= 0) ::close(output_);
}

int job::wait(std::chrono::nanoseconds limit) {
  if (pid_ <= 0) return -1;
  const bool over = chorale::testing::ends_within(pid_, limit);
  ended_at_ = now_ns();
  if (!over) return -1;
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string job::output() const {
  struct stat about{};
  if (::fstat(output_, &about) != 0) return {};
  std::string text(static_cast<std::size_t>(about.st_size), '\0');
  const ssize_t got = ::pread(output_, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

two_hosts::two_hosts() {
  static std::atomic<int> made{0};
  const std::string id = std::to_string(::getpid()) + "-" + std::to_string(made++);
  names_[0] = "endings-a" + id;
  names_[1] = "endings-b" + id;
  bool ready = shell("ip netns add " + names_[0] + " && ip netns add " + names_[1] +
                     " && ip link add va netns " + names_[0] + " type veth peer name vb netns " + names_[1]);
  for (int i = 0; i < 2; ++i) {
    const std::string in = "ip -n " + names_[i] + " ";
    const std::string device = i == 0 ? "va" : "vb";
    ready = ready && shell(in + "addr add 10.78.0." + std::to_string(i + 1) + "/24 dev " + device + " && " +
                           in + "link set lo up && " + in + "link set " + device + " up");
  }
  if (!ready) throw std::runtime_error{"the namespaces could not be set up"};
}

two_hosts::~two_hosts() {
  for (const std::string& name : names_) (void)shell("ip netns del " + name);
}

bool two_hosts::possible() {
  const std::string probe = "endings-probe" + std::to_string(::getpid());
  if (::geteuid() != 0 || !shell("ip netns add " + probe)) return false;
  const bool usable = shell("ip netns exec " + probe + " true");
  return shell("ip netns del " + probe) && usable;
}

std::vector<std::string> two_hosts::on(int host) const { return {"ip", "netns", "exec", names_[host]}; }

void two_hosts::cut() const { (void)shell("ip -n " + names_[0] + " link set va down"); }

bool taken(sem_t& posted, int times, std::chrono::nanoseconds limit) noexcept {
  timespec until{};
  ::clock_gettime(CLOCK_REALTIME, &until);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(limit);
  until.tv_sec += seconds.count() + 1;
  for (; times > 0; --times)
    while (::sem_timedwait(&posted, &until) != 0)
      if (errno != EINTR) return false;
  return true;
}

}  // namespace endings
