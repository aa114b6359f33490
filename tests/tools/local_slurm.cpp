#include "local_slurm.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace chorale::tools_test {
namespace {

using namespace std::chrono_literals;

std::string short_host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  const std::string whole{name.data()};
  return whole.substr(0, whole.find('.'));
}

// Such as "22.05.8": year and month, which compare as text.
std::string slurm_version() {
  const outcome o = finish(start_program({"slurmd", "-V"}));
  const std::size_t space = o.output.find(' ');
  return space == std::string::npos ? "" : o.output.substr(space + 1);
}

void write_key(const std::filesystem::path& path) {
  std::random_device random;
  std::ofstream file{path, std::ios::binary};
  for (int i = 0; i < 256; ++i) file.put(static_cast<char>(random()));
  file.close();
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
}

}  // namespace

boost::test_tools::assertion_result slurm_is_here(boost::unit_test::test_unit_id) {
  const bool installed =
      std::system(
          "for p in munged slurmctld slurmd srun sinfo; do command -v $p || exit 1; done >/dev/null") == 0;
  boost::test_tools::assertion_result here{installed && ::geteuid() == 0};
  here.message() << (installed ? "Slurm's daemons need root" : "Slurm is not installed");
  return here;
}

std::vector<int> free_ports(std::size_t count) {
  std::vector<int> sockets;
  std::vector<int> ports;
  for (std::size_t i = 0; i < count; ++i) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    BOOST_TEST_REQUIRE(::bind(sockets.back(), reinterpret_cast<const sockaddr*>(&at), size) == 0);
    BOOST_TEST_REQUIRE(::getsockname(sockets.back(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    ports.push_back(ntohs(at.sin_port));
  }
  for (const int s : sockets) ::close(s);
  return ports;
}

local_slurm::local_slurm() {
  std::string name = (std::filesystem::temp_directory_path() / "chorale-slurm-XXXXXX").string();
  if (!::mkdtemp(name.data())) throw std::runtime_error{"no temporary folder at " + name};
  folder_ = name;
  // Munge looks at who may come past its socket.
  std::filesystem::permissions(folder_, std::filesystem::perms{0755});
  // slurmd's own children leave it; an init that does not reap them would keep their corpses.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  try {
    configure();
    const auto in_folder = [&](const char* file) { return (folder_ / file).string(); };
    start("munged", {"munged", "--foreground", "--force", "--key-file=" + in_folder("key"),
                     "--socket=" + in_folder("munge.socket"), "--pid-file=" + in_folder("munged.pid"),
                     "--log-file=" + in_folder("munged.events"), "--seed-file=" + in_folder("seed")});
    wait_until([&] { return std::filesystem::exists(folder_ / "munge.socket"); }, "munged listens");
    start("slurmctld", {"slurmctld", "-D"});
    start("slurmd-1", {"slurmd", "-D", "-N", "node1"});
    start("slurmd-2", {"slurmd", "-D", "-N", "node2"});
    wait_until(
        [&] {
          const outcome o =
              finish(start_program(with_configuration({"sinfo", "--noheader", "--Node", "--format=%T"})));
          return o.output == "idle\nidle\n";
        },
        "both nodes are idle");
  } catch (...) {
    end_all();
    throw;
  }
}

local_slurm::~local_slurm() { end_all(); }

outcome local_slurm::srun(const std::vector<std::string>& arguments) const {
  std::vector<std::string> command{"timeout", "25", "srun"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return finish(start_program(with_configuration(std::move(command))));
}

void local_slurm::configure() const {
  write_key(folder_ / "key");
  std::filesystem::create_directory(folder_ / "state");
  const std::string host = short_host_name();
  const std::string folder = folder_.string();
  const std::vector<int> ports = free_ports(3);
  std::ofstream{folder_ / "slurm.conf"}
      << "ClusterName=chorale\n"
      << "SlurmctldHost=" << host << "(127.0.0.1)\n"
      << "SlurmctldPort=" << ports[0] << "\n"
      << "SlurmUser=root\n"
      << "SlurmdUser=root\n"
      << "AuthType=auth/munge\n"
      << "AuthInfo=socket=" << folder << "/munge.socket\n"
      << "CredType=cred/munge\n"
      << "StateSaveLocation=" << folder << "/state\n"
      << "SlurmdSpoolDir=" << folder << "/spool-%n\n"
      << "SlurmctldPidFile=" << folder << "/slurmctld.pid\n"
      << "SlurmdPidFile=" << folder << "/slurmd-%n.pid\n"
      << "ProctrackType=proctrack/linuxproc\n"
      << "SlurmdParameters=config_overrides\n"  // more CPUs than there are
      << "MpiDefault=none\n"
      << "NodeName=node1 NodeHostname=" << host << " NodeAddr=127.0.0.1 CPUs=4 Port=" << ports[1] << "\n"
      << "NodeName=node2 NodeHostname=" << host << " NodeAddr=127.0.0.1 CPUs=4 Port=" << ports[2] << "\n"
      << "PartitionName=all Nodes=ALL Default=YES\n";
  // From this version on slurmd wants a systemd to make it a cgroup, unless told so; older ones do not know
  // the word.
  if (slurm_version() >= "23.02") std::ofstream{folder_ / "cgroup.conf"} << "CgroupPlugin=disabled\n";
}

void local_slurm::start(const std::string& name, std::vector<std::string> command) {
  command = with_configuration(std::move(command));
  std::vector<char*> pointers;
  for (std::string& c : command) pointers.push_back(c.data());
  pointers.push_back(nullptr);
  const std::string log = (folder_ / (name + ".log")).string();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::dup2(file, 1);
    ::dup2(file, 2);
    ::execvp(pointers[0], pointers.data());
    ::_exit(99);
  }
  daemons_.push_back({name, pid});
}

void local_slurm::end(daemon& d) const noexcept {
  ::kill(d.pid, SIGTERM);
  const auto until = std::chrono::steady_clock::now() + 5s;
  while (::waitpid(d.pid, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > until) {
      ::kill(d.pid, SIGKILL);
      ::waitpid(d.pid, nullptr, 0);
      return;
    }
    std::this_thread::sleep_for(10ms);
  }
}

// The last started first: none ends without the ones it needs for ending.
void local_slurm::end_all() noexcept {
  while (!daemons_.empty()) {
    end(daemons_.back());
    daemons_.pop_back();
  }
  // What a step left behind was handed to this process.
  const auto until = std::chrono::steady_clock::now() + 2s;
  while (::waitpid(-1, nullptr, WNOHANG) >= 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(5ms);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

template <class Condition>
void local_slurm::wait_until(Condition holds, std::string_view what) const {
  const auto until = std::chrono::steady_clock::now() + 15s;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until)
      throw std::runtime_error{"Slurm: not after 15 s: " + std::string{what} + "\n" + last_words()};
    std::this_thread::sleep_for(20ms);
  }
}

std::vector<std::string> local_slurm::with_configuration(std::vector<std::string> command) const {
  command.insert(command.begin(), {"env", "SLURM_CONF=" + (folder_ / "slurm.conf").string()});
  return command;
}

std::string local_slurm::last_words() const {
  std::string words;
  for (const daemon& d : daemons_) {
    std::stringstream log;
    log << std::ifstream{folder_ / (d.name + ".log")}.rdbuf();
    const std::string text = log.str();
    words += d.name + ":\n" + text.substr(text.size() - std::min<std::size_t>(text.size(), 1000)) + "\n";
  }
  return words;
}

}  // namespace chorale::tools_test
