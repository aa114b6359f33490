#include <chorale/transport/bootstrap/descriptor_mail.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

namespace chorale {
namespace {

/// One letter, without waiting; -1 in errno's place of a count: nothing is there.
ssize_t receive(int socket, std::uint64_t& name, unique_fd& content) noexcept {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  iovec part{&name, sizeof name};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got;
  do got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  const cmsghdr* const header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) return got;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  content.reset(fd);
  return got;
}

}  // namespace

task<result<void>> descriptor_mail::send(const peer& to, std::uint64_t name, int fd) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span{&name, 1});
  task<result<void>> sending = send_fds(to.mate.get(), bytes, {&fd, 1});
  auto sent = co_await std::move(sending);
  co_return sent;
}

result<unique_fd> descriptor_mail::take(const peer& from, std::uint64_t name) {
  const auto wanted = [&](const letter& l) { return l.from == from.rank && l.name == name; };
  for (;;) {
    if (const auto found = std::ranges::find_if(kept_, wanted); found != kept_.end()) {
      unique_fd content = std::move(found->content);
      kept_.erase(found);
      return content;
    }
    letter next{from.rank, 0, {}};
    const ssize_t got = receive(from.mate.get(), next.name, next.content);
    if (got == 0) return error{errc::link_lost, "it closed the socket that carries descriptors", from.rank};
    if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
      return error::from_os(errno, "recvmsg of a descriptor", from.rank);
    if (got != sizeof next.name)
      return error{errc::protocol_error, "a descriptor that a host-mate should have sent is not there",
                   from.rank};
    if (!next.content)
      return error{errc::system_error,
                   "a descriptor was lost on the way: raise this process's limit of open files", from.rank};
    kept_.push_back(std::move(next));
  }
}

}  // namespace chorale
