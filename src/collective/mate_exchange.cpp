#include <chorale/collective/mate_exchange.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace chorale {

using std::chrono::steady_clock;

mate_exchange::mate_exchange(const world& members, steady_clock::time_point until)
    : rank_{members.rank}, until_{until} {
  for (const peer& p : members.peers) sockets_.push_back(p.rank == rank_ ? -1 : p.mate.get());
}

error mate_exchange::ended(rank_t peer, const char* doing) const {
  return error{errc::peer_lost, std::string{"the socket to it ended while "} + doing, peer};
}

result<void> mate_exchange::wait(rank_t peer, int socket, short events) const {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until_ - steady_clock::now()).count();
    if (left <= 0)
      return error{errc::timed_out, "waiting for a host-mate while a device group is made", peer};
    pollfd on{socket, events, 0};
    const int ready = ::poll(&on, 1, static_cast<int>(std::min<long long>(left + 1, 1000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return error::from_os(errno, "poll", peer);
  }
}

result<void> mate_exchange::send(rank_t to, std::span<const std::byte> bytes, int fd) const {
  const int socket = sockets_[static_cast<std::size_t>(to)];
  while (!bytes.empty()) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof fd);
      std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      fd = -1;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (auto room = wait(to, socket, POLLOUT); !room) return room;
    } else if (errno != EINTR) {
      return ended(to, "sending");
    }
  }
  return {};
}

/// Returns the descriptor that came along, or -1.
result<int> mate_exchange::receive(rank_t from, std::span<std::byte> bytes) const {
  const int socket = sockets_[static_cast<std::size_t>(from)];
  int fd = -1;
  while (!bytes.empty()) {
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got == 0) return ended(from, "receiving");
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      const cmsghdr* header = CMSG_FIRSTHDR(&message);
      if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        if (fd >= 0) ::close(fd);
        std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
      }
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (auto there = wait(from, socket, POLLIN); !there) return std::move(there).error();
    } else if (errno != EINTR) {
      return ended(from, "receiving");
    }
  }
  return fd;
}

result<std::vector<std::byte>> mate_exchange::all_gather_bytes(std::span<const std::byte> mine) {
  std::vector<std::byte> all(mine.size() * sockets_.size());
  const auto part = [&](std::size_t r) { return std::span{all}.subspan(r * mine.size(), mine.size()); };
  for (std::size_t r = 0; r < sockets_.size(); ++r)
    if (sockets_[r] >= 0)
      if (auto sent = send(static_cast<rank_t>(r), mine, -1); !sent) return std::move(sent).error();
  for (std::size_t r = 0; r < sockets_.size(); ++r) {
    if (sockets_[r] < 0) {
      std::ranges::copy(mine, part(r).begin());
      continue;
    }
    auto got = receive(static_cast<rank_t>(r), part(r));
    if (!got) return std::move(got).error();
    if (*got >= 0) ::close(*got);
  }
  return all;
}

result<std::vector<int>> mate_exchange::all_gather_fds(int mine) {
  const std::byte token{1};
  for (std::size_t r = 0; r < sockets_.size(); ++r)
    if (sockets_[r] >= 0)
      if (auto sent = send(static_cast<rank_t>(r), {&token, 1}, mine); !sent) return std::move(sent).error();
  std::vector<unique_fd> owned(sockets_.size());
  for (std::size_t r = 0; r < sockets_.size(); ++r) {
    if (sockets_[r] < 0) continue;
    std::byte byte{};
    auto got = receive(static_cast<rank_t>(r), {&byte, 1});
    if (!got) return std::move(got).error();
    if (*got < 0)
      return error{errc::protocol_error, "a host-mate sent no descriptor", static_cast<rank_t>(r)};
    owned[r].reset(*got);
  }
  std::vector<int> all;
  for (unique_fd& fd : owned) all.push_back(fd.release());
  return all;
}

result<void> mate_exchange::barrier() {
  const std::byte token{2};
  auto all = all_gather_bytes({&token, 1});
  if (!all) return std::move(all).error();
  return {};
}

}  // namespace chorale
