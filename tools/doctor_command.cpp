// `chorale doctor`: what this machine offers, what chorale will do without, and what to change.
#include "commands.hpp"
#include <chorale/async/engine.hpp>
#include <chorale/collective/selection.hpp>
#include <chorale/driver/cuda.hpp>
#include <chorale/kernels/kernel_image.hpp>
#include <chorale/transport/bootstrap/config.hpp>
#include <chorale/transport/bootstrap/segment.hpp>
#include <chorale/transport/guard/guard_options.hpp>
#include <chorale/transport/socket.hpp>

#include <CLI/CLI.hpp>
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::tools {
namespace {

enum class verdict { good, note, problem };

struct finding {
  verdict how;
  std::string subject;
  std::string text;
};

finding look_at_backend() {
  const auto made = make_backend(backend_kind::automatic);
  if (!made) return {verdict::problem, "engine", made.error().message()};
  const std::string name = (*made)->name();
  if (name == "io_uring") return {verdict::good, "engine", "io_uring"};
  return {verdict::note, "engine",
          name + ": io_uring is refused here (seccomp, kernel.io_uring_disabled, or not built in)"};
}

finding look_at_cpus() {
  const int count = usable_cpus();
  const std::string text = std::to_string(count) + " usable by this process (affinity and cgroup quota)";
  return {count < 2 ? verdict::note : verdict::good, "CPUs",
          text + (count < 2 ? "; ranks will not spin" : "")};
}

finding look_at_pidfd() {
  const unique_fd self{static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))};
  if (self) return {verdict::good, "pidfd", "available"};
  return {verdict::note, "pidfd",
          std::string{"pidfd_open: "} + std::strerror(errno) + "; deaths are seen by closed sockets instead"};
}

finding look_at_futex_waitv() {
  // No waiters at all: a kernel that knows the call answers EINVAL.
  if (::syscall(449, nullptr, 0, 0, nullptr, CLOCK_MONOTONIC) < 0 && errno != EINVAL)
    return {verdict::note, "futex_waitv",
            std::string{std::strerror(errno)} + "; deaths are noticed later, by pidfd"};
  return {verdict::good, "futex_waitv", "available: deaths on this host are noticed within milliseconds"};
}

finding look_at_shared_memory() {
  const auto made = segment::create(4096);
  if (made) return {verdict::good, "shared memory", "sealed memfd works"};
  return {verdict::problem, "shared memory", made.error().message()};
}

finding look_at_unix_sockets() {
  const auto made = listen_on(address::unix_abstract("chorale-doctor-" + std::to_string(::getpid())));
  if (made) return {verdict::good, "unix sockets", "abstract names work"};
  return {verdict::problem, "unix sockets", made.error().message() + "; ranks of this host will use tcp"};
}

finding look_at_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text =
      std::to_string(limit.rlim_cur) + " (at most " + std::to_string(limit.rlim_max) + ")";
  if (limit.rlim_cur >= 4096) return {verdict::good, "open files", text};
  return {verdict::note, "open files",
          text + "; raise it (ulimit -n 65536) for more than a few hundred ranks"};
}

finding look_at_congestion_control() {
  std::ifstream file{"/proc/sys/net/ipv4/tcp_congestion_control"};
  std::string name;
  file >> name;
  if (name != "bbr") return {verdict::good, "tcp", "congestion control " + name};
  return {verdict::note, "tcp",
          "bbr is the default; between ranks of this host another is chosen per socket"};
}

finding look_at_interfaces() {
  const char* const chosen = std::getenv("CHORALE_SOCKET_IFNAME");
  const auto found = interface_addresses(interface_filter{chosen ? chosen : ""});
  if (!found) return {verdict::problem, "network", found.error().message()};
  std::string text;
  for (address a : *found) text += (text.empty() ? "" : ", ") + a.text().substr(0, a.text().rfind(':'));
  if (text.empty())
    return {verdict::note, "network", "no interface but loopback is up and allowed: one host only"};
  return {verdict::good, "network", text};
}

finding look_at_launcher() {
  const auto config = bootstrap_config::from_environment();
  if (!config) return {verdict::problem, "launcher", config.error().message()};
  if (config->started_by == launcher::none)
    return {verdict::good, "launcher", "none: a program started so is a job of one"};
  return {verdict::good, "launcher",
          std::string{name_of(config->started_by)} + ": rank " + std::to_string(config->rank) + " of " +
              std::to_string(config->size) + ", meeting at " + config->root.text()};
}

/// Every variable that is read, as docs/launchers.md lists them.
constexpr std::array known_variables{
    "CHORALE_ALGO",          "CHORALE_BACKEND",       "CHORALE_BOOTSTRAP_TIMEOUT",
    "CHORALE_DETERMINISTIC", "CHORALE_FATAL_SIGNALS", "CHORALE_HOSTID",
    "CHORALE_LINK_TIMEOUT",  "CHORALE_LOCAL_RANK",    "CHORALE_LOCAL_SIZE",
    "CHORALE_MAX_CTAS",      "CHORALE_PEER_TIMEOUT",  "CHORALE_RANK",
    "CHORALE_RENDEZVOUS",    "CHORALE_RESET_GRACE",   "CHORALE_ROOT",
    "CHORALE_SECRET",        "CHORALE_SIZE",          "CHORALE_SOCKET_IFNAME",
    "CHORALE_SPIN_US",       "CHORALE_STRIPES",       "CHORALE_TRANSPORT"};

finding look_at_settings() {
  if (const auto guard = guard_options::from_environment(); !guard)
    return {verdict::problem, "settings", guard.error().message()};
  if (const auto selection = selection_settings::from_environment(); !selection)
    return {verdict::problem, "settings", selection.error().message()};
  std::string unknown;
  for (char** v = environ; *v; ++v) {
    const std::string_view variable{*v};
    const std::string_view name = variable.substr(0, variable.find('='));
    if (name.starts_with("CHORALE_") && std::ranges::find(known_variables, name) == known_variables.end())
      unknown += (unknown.empty() ? "" : ", ") + std::string{name};
  }
  if (unknown.empty()) return {verdict::good, "settings", "every CHORALE_ variable that is set makes sense"};
  return {verdict::note, "settings", "nothing reads " + unknown + "; docs/launchers.md lists what is read"};
}

finding look_at_gpus() {
  const char* const subject = "GPUs";
  const auto driver = cuda::cuda_driver::load();
  if (!driver) return {verdict::note, subject, "none: " + driver.error().detail()};
  if (cuda::kernel_images().empty())
    return {verdict::note, subject, "this chorale was built without CUDA: install nvcc and build it again"};
  const cuda::cuda_driver& gpu = **driver;
  int count = 0;
  if (gpu.device_get_count(&count) != cuda::success || count == 0)
    return {verdict::note, subject, "the driver is there and shows no device (CUDA_VISIBLE_DEVICES?)"};
  std::array<char, 64> name{};
  cuda::device_id first{};
  if (gpu.device_get(&first, 0) == cuda::success)
    gpu.device_get_name(name.data(), static_cast<int>(name.size()) - 1, first);
  std::string apart;
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b) {
      cuda::device_id from{};
      cuda::device_id to{};
      int reaches = a == b ? 1 : 0;
      if (a != b && gpu.device_get(&from, a) == cuda::success && gpu.device_get(&to, b) == cuda::success)
        gpu.device_get_peer_attribute(&reaches, cuda::peer_attribute::access_supported, from, to);
      if (reaches == 0) apart += (apart.empty() ? "" : ", ") + std::to_string(a) + " to " + std::to_string(b);
    }
  const std::string text = std::to_string(count) + " (the first: " + name.data() + ")";
  if (apart.empty()) return {verdict::good, subject, text + ", each reaches each"};
  return {verdict::note, subject, text + "; no peer access from " + apart + ": these cannot be in one job"};
}

int doctor() {
  const std::vector<finding> findings{
      look_at_launcher(),      look_at_settings(),           look_at_cpus(),        look_at_backend(),
      look_at_shared_memory(), look_at_unix_sockets(),       look_at_futex_waitv(), look_at_pidfd(),
      look_at_interfaces(),    look_at_congestion_control(), look_at_files(),       look_at_gpus()};
  bool problems = false;
  for (const finding& f : findings) {
    const char* const mark = f.how == verdict::good   ? "ok      "
                             : f.how == verdict::note ? "note    "
                                                      : "PROBLEM ";
    std::printf("%s %-18s %s\n", mark, f.subject.c_str(), f.text.c_str());
    problems = problems || f.how == verdict::problem;
  }
  return problems ? 1 : 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      app.add_subcommand("doctor", "Look at what this machine offers and what is in the way");
  command->footer(
      "Exit code 1 if something stops chorale from working here; notes say what it does without.");
  command->callback([&exit_code] { exit_code = doctor(); });
}

}  // namespace chorale::tools
