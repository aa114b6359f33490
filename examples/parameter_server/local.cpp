#include "local.hpp"

#include "digits/mlp.hpp"
#include "server.hpp"
#include "watch.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>

namespace parameter_server {
namespace {

/// Processes that end with this one at the latest.
class processes {
 public:
  processes() = default;
  processes(const processes&) = delete;
  processes& operator=(const processes&) = delete;
  ~processes() {
    for (const pid_t pid : running_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  void start(const std::function<chorale::task<>()>& make) {
    std::fflush(stdout);
    const pid_t pid = ::fork();
    if (pid < 0) throw chorale::failure{chorale::error::from_os(errno, "fork")};
    if (pid > 0) return running_.push_back(pid);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 0;
    try {
      chorale::engine engine;
      engine.run(make());
    } catch (const chorale::failure& f) {
      fmt::print(stderr, "parameter_server: {}\n", f.what());
      code = 1;
    }
    std::fflush(stdout);
    ::_exit(code);
  }
  /// Waits for all; 0 if each ended well.
  int join() {
    int worst = 0;
    for (const pid_t pid : running_) {
      int status = 0;
      ::waitpid(pid, &status, 0);
      if (status != 0) worst = 1;
    }
    running_.clear();
    return worst;
  }

 private:
  std::vector<pid_t> running_;
};

}  // namespace

int run_local(const local_options& options, const digits::parts& data, const std::vector<std::size_t>& widths,
              std::uint64_t seed) {
  const digits::mlp initial{widths, seed};
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < options.servers; ++i)
    addresses.push_back(fmt::format("unix:@parameter-server-{}-{}", ::getpid(), i));
  processes job;
  for (std::size_t i = 0; i < options.servers; ++i) {
    server_options server;
    server.address = addresses[i];
    server.number = i;
    server.servers = options.servers;
    server.by = options.by;
    server.speaks = false;
    job.start([&] { return serve(server, {initial.parameters().begin(), initial.parameters().end()}); });
  }
  for (std::uint32_t w = 0; w < options.workers; ++w) {
    worker_options worker = options.worker;
    worker.servers = addresses;
    worker.worker = w;
    worker.speaks = false;
    job.start([&] { return work(worker, data.training, widths); });
  }
  watch_options looking;
  looking.servers = addresses;
  looking.stop = true;
  chorale::engine engine;
  engine.run(watch(looking, data.test, widths));
  return job.join();
}

}  // namespace parameter_server
