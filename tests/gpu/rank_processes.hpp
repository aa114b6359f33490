// One process per GPU for tests and benchmarks: a parent that starts ranks by fork and exec, and the exchange
// between them through it.
//
// The parent holds one socket pair per rank and group; `hub` relays every round of a group's exchange: it
// takes one message (bytes, perhaps a descriptor) from each rank, in rank order, and gives all of them to
// each. When a rank's socket ends, the hub ends all of them, so that nobody waits for ever.
#pragma once

#include <chorale/kernels/rank_exchange.hpp>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace chorale::gpu_test {

inline constexpr std::size_t most_ranks = 8;

/// A length, that many bytes, and descriptors beside the length.
inline bool send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  std::uint64_t length = bytes.size();
  iovec part{&length, sizeof length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * most_ranks)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof length)) return false;
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

inline bool receive_message(int socket, std::vector<std::byte>& bytes, std::vector<int>& fds) {
  std::uint64_t length = 0;
  iovec part{&length, sizeof length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * most_ranks)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof length))
    return false;
  fds.clear();
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    fds.resize((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(fds.data(), CMSG_DATA(header), fds.size() * sizeof(int));
  }
  bytes.resize(length);
  std::size_t have = 0;
  while (have < length) {
    const ssize_t n = ::recv(socket, bytes.data() + have, length - have, 0);
    if (n <= 0) return false;
    have += static_cast<std::size_t>(n);
  }
  return true;
}

/// A rank's side.
class hub_exchange final : public rank_exchange {
 public:
  hub_exchange(int socket, int rank) : socket_{socket}, rank_{rank} {}
  ~hub_exchange() override { ::close(socket_); }

  result<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> mine) override {
    std::vector<std::byte> all;
    std::vector<int> none;
    if (!send_message(socket_, mine, {}) || !receive_message(socket_, all, none)) return gone();
    return all;
  }
  result<std::vector<int>> all_gather_fds(int mine) override {
    std::vector<std::byte> nothing;
    std::vector<int> all;
    if (!send_message(socket_, {}, {&mine, 1}) || !receive_message(socket_, nothing, all)) return gone();
    ::close(all[static_cast<std::size_t>(rank_)]);
    all[static_cast<std::size_t>(rank_)] = -1;
    return all;
  }
  result<void> barrier() override {
    const std::byte one{};
    auto r = all_gather_bytes({&one, 1});
    if (!r) return std::move(r).error();
    return {};
  }

 private:
  static error gone() {
    return error{errc::bootstrap_failed, "a rank of this test ended during an exchange: see its output"};
  }
  int socket_;
  int rank_;
};

/// The parent's side of one group: pass `end(r)` to rank r's process. Its thread ends with the first rank.
class hub {
 public:
  explicit hub(int size) : here_(static_cast<std::size_t>(size)), there_(static_cast<std::size_t>(size)) {
    for (std::size_t r = 0; r < here_.size(); ++r) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        throw failure{error::from_os(errno, "socketpair")};
      here_[r] = pair[0];
      there_[r] = pair[1];
    }
    relay_ = std::thread{[this] {
      while (round()) {
      }
      for (int socket : here_) ::shutdown(socket, SHUT_RDWR);
    }};
  }
  hub(const hub&) = delete;
  hub& operator=(const hub&) = delete;
  ~hub() {
    for (int socket : here_) ::shutdown(socket, SHUT_RDWR);
    relay_.join();
    for (int socket : here_) ::close(socket);
    for (std::size_t r = 0; r < there_.size(); ++r) release(static_cast<int>(r));
  }
  [[nodiscard]] int end(int rank) const { return there_[static_cast<std::size_t>(rank)]; }
  /// After the rank's process was started: only it holds its end now.
  void release(int rank) {
    int& fd = there_[static_cast<std::size_t>(rank)];
    if (fd >= 0) ::close(fd);
    fd = -1;
  }

 private:
  bool round() {
    std::vector<std::byte> all;
    std::vector<int> all_fds;
    bool good = true;
    for (int socket : here_) {
      std::vector<std::byte> bytes;
      std::vector<int> fds;
      good = good && receive_message(socket, bytes, fds);
      all.insert(all.end(), bytes.begin(), bytes.end());
      all_fds.insert(all_fds.end(), fds.begin(), fds.end());
    }
    for (int socket : here_) good = good && send_message(socket, all, all_fds);
    for (int fd : all_fds) ::close(fd);
    return good;
  }
  std::vector<int> here_;
  std::vector<int> there_;
  std::thread relay_;
};

/// Starts this program again with `arguments`; it inherits the descriptors in `keep` and no others of ours.
inline pid_t start_rank(const std::vector<std::string>& arguments, const std::vector<int>& all_ends,
                        const std::vector<int>& keep) {
  std::vector<char*> argv;
  std::string program = "/proc/self/exe";
  argv.push_back(program.data());
  std::vector<std::string> copies = arguments;
  for (std::string& a : copies) argv.push_back(a.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (int fd : all_ends) {
    bool kept = false;
    for (int k : keep) kept = kept || k == fd;
    if (!kept && fd >= 0) ::close(fd);
  }
  ::execv(program.c_str(), argv.data());
  ::_exit(127);
}

/// 0 when the process exited with 0; else something to print.
inline int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace chorale::gpu_test
