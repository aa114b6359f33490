#include <chorale/async/io.hpp>
#include <chorale/transport/socket.hpp>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>

namespace chorale {
namespace {

constexpr std::string_view unix_prefix = "unix:";

error bad_address(std::string_view text, std::string_view why) {
  return error{errc::invalid_argument, "\"" + std::string{text} +
                                           "\" is not an address: " + std::string{why} +
                                           "; write host:port, [v6 address]:port or unix:@name"};
}

result<address> parse_unix(std::string_view text) {
  const std::string_view name = text.substr(unix_prefix.size());
  sockaddr_un un{};
  if (name.size() < 2 || name.size() >= sizeof un.sun_path)
    return bad_address(text, "the name has " + std::to_string(name.size()) + " characters, 2 to 107 fit");
  if (name.front() == '@') return address::unix_abstract(name.substr(1));
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path, name.data(), name.size());
  return address{reinterpret_cast<const sockaddr*>(&un), sizeof un};
}

const sockaddr_in& v4(const address& a) noexcept { return *reinterpret_cast<const sockaddr_in*>(a.data()); }
const sockaddr_in6& v6(const address& a) noexcept { return *reinterpret_cast<const sockaddr_in6*>(a.data()); }

template <class T>
void set_option(int fd, int level, int name, const T& value) noexcept {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

void unique_fd::reset(int fd) noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

address::address(const sockaddr* from, socklen_t size) noexcept
    : size_{std::min<socklen_t>(size, sizeof storage_)} {
  std::memcpy(&storage_, from, size_);
}

address address::unix_abstract(std::string_view name) noexcept {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof un.sun_path - 1);
  std::memcpy(un.sun_path + 1, name.data(), length);
  return address{reinterpret_cast<const sockaddr*>(&un),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

address address::loopback(std::uint16_t port) noexcept {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  in.sin_port = htons(port);
  return address{reinterpret_cast<const sockaddr*>(&in), sizeof in};
}

result<address> address::parse(std::string_view text) {
  if (text.starts_with(unix_prefix)) return parse_unix(text);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return bad_address(text, "it has no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  unsigned number = 0;
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), number);
  if (parsed.ec != std::errc{} || parsed.ptr != port.data() + port.size() || number > 65535)
    return bad_address(text, "the port must be a number up to 65535");
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return bad_address(text, "an IPv6 address needs brackets");

  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(std::string{host}.c_str(), std::string{port}.c_str(), &hints, &found);
  if (failed != 0) return bad_address(text, ::gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner{found, ::freeaddrinfo};
  return address{found->ai_addr, found->ai_addrlen};
}

bool address::is_local() const noexcept {
  switch (family()) {
    case AF_UNIX:
      return true;
    case AF_INET:
      return (ntohl(v4(*this).sin_addr.s_addr) >> 24) == 127;
    case AF_INET6:
      return IN6_IS_ADDR_LOOPBACK(&v6(*this).sin6_addr);
    default:
      return false;
  }
}

bool address::is_wildcard() const noexcept {
  if (family() == AF_INET) return v4(*this).sin_addr.s_addr == htonl(INADDR_ANY);
  if (family() == AF_INET6) return IN6_IS_ADDR_UNSPECIFIED(&v6(*this).sin6_addr);
  return false;
}

std::uint16_t address::port() const noexcept {
  if (family() == AF_INET) return ntohs(v4(*this).sin_port);
  if (family() == AF_INET6) return ntohs(v6(*this).sin6_port);
  return 0;
}

void address::set_port(std::uint16_t port) noexcept {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
}

std::string address::text() const {
  std::array<char, INET6_ADDRSTRLEN> buffer{};
  switch (family()) {
    case AF_INET:
      ::inet_ntop(AF_INET, &v4(*this).sin_addr, buffer.data(), buffer.size());
      return std::string{buffer.data()} + ":" + std::to_string(port());
    case AF_INET6:
      ::inet_ntop(AF_INET6, &v6(*this).sin6_addr, buffer.data(), buffer.size());
      return "[" + std::string{buffer.data()} + "]:" + std::to_string(port());
    case AF_UNIX: {
      const auto& un = *reinterpret_cast<const sockaddr_un*>(&storage_);
      const std::size_t length =
          size_ > offsetof(sockaddr_un, sun_path) ? size_ - offsetof(sockaddr_un, sun_path) : 0;
      if (length == 0) return "unix:(unnamed)";
      if (un.sun_path[0] != '\0') return "unix:" + std::string{un.sun_path, ::strnlen(un.sun_path, length)};
      return "unix:@" + std::string{un.sun_path + 1, length - 1};
    }
    default:
      return "(no address)";
  }
}

bool address::same_host(const address& other) const noexcept {
  if (family() != other.family()) return false;
  if (family() == AF_INET) return v4(*this).sin_addr.s_addr == v4(other).sin_addr.s_addr;
  if (family() == AF_INET6) return IN6_ARE_ADDR_EQUAL(&v6(*this).sin6_addr, &v6(other).sin6_addr);
  return is_unix();
}

result<unique_fd> listen_on(const address& where, int backlog) {
  unique_fd fd{::socket(where.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!fd) return error::from_os(errno, "socket for " + where.text());
  if (!where.is_unix()) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), where.data(), where.size()) != 0) return error::from_os(errno, "bind " + where.text());
  if (::listen(fd.get(), backlog) != 0) return error::from_os(errno, "listen on " + where.text());
  return fd;
}

result<unique_fd> open_stream(const address& towards) {
  unique_fd fd{::socket(towards.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  if (!fd) return error::from_os(errno, "socket for " + towards.text());
  return fd;
}

address local_address(int fd) noexcept {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  return address{reinterpret_cast<sockaddr*>(&storage), size};
}

address peer_address(int fd) noexcept {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  return address{reinterpret_cast<sockaddr*>(&storage), size};
}

interface_filter::interface_filter(std::string_view text) {
  if (text.starts_with('^')) excluding_ = true, text.remove_prefix(1);
  if (text.starts_with('=')) exactly_ = true, text.remove_prefix(1);
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (comma != 0) names_.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
}

bool interface_filter::allows(std::string_view interface_name) const noexcept {
  if (is_default()) {
    // Bridges of container runtimes have the same address on every host: connecting there finds oneself.
    constexpr std::array<std::string_view, 4> not_networks{"lo", "docker", "virbr", "br-"};
    return std::none_of(not_networks.begin(), not_networks.end(),
                        [&](std::string_view name) { return interface_name.starts_with(name); });
  }
  const bool listed = std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
    return exactly_ ? interface_name == name : interface_name.starts_with(name);
  });
  return listed != excluding_;
}

result<std::vector<address>> interface_addresses(const interface_filter& filter) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return error::from_os(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner{list, ::freeifaddrs};
  std::vector<address> found;
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || !filter.allows(i->ifa_name)) continue;
    if (i->ifa_addr->sa_family == AF_INET) found.emplace_back(i->ifa_addr, socklen_t{sizeof(sockaddr_in)});
    if (i->ifa_addr->sa_family == AF_INET6) {
      const auto& in6 = *reinterpret_cast<const sockaddr_in6*>(i->ifa_addr);
      if (!IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr)) found.emplace_back(i->ifa_addr, socklen_t{sizeof in6});
    }
  }
  return found;
}

void tune_tcp(int fd) noexcept {
  const address here = local_address(fd);
  if (here.is_unix()) return;
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  if (!here.is_local() && !here.same_host(peer_address(fd))) return;
  // bbr, where it is the default, paces even loopback.
  for (const std::string_view name : {"cubic", "reno"})
    if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0)
      break;
}

result<peer_credentials> credentials_of(int unix_socket) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(unix_socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
    return error::from_os(errno, "getsockopt SO_PEERCRED");
  return peer_credentials{who.pid, who.uid};
}

unique_fd process_of(int unix_socket, const peer_credentials& who) noexcept {
#ifndef SO_PEERPIDFD
  constexpr int SO_PEERPIDFD = 77;  // Linux 6.5; glibc 2.36 does not name it
#endif
  int fd = -1;
  socklen_t size = sizeof fd;
  if (::getsockopt(unix_socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) return unique_fd{fd};
  if (who.pid <= 0) return {};
  return unique_fd{static_cast<int>(::syscall(SYS_pidfd_open, who.pid, 0))};
}

task<result<void>> send_fds(int unix_socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  if (fds.size() > max_fds_per_message || bytes.empty())
    co_return error{errc::invalid_argument, "a message carries at least one byte and at most 64 descriptors"};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * max_fds_per_message)> control{};
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  auto sent = co_await send_message(unix_socket, message);
  if (!sent) co_return std::move(sent).error();
  auto rest = co_await send_all(unix_socket, bytes.data() + *sent, bytes.size() - *sent);
  co_return rest;
}

namespace {

void collect_fds(msghdr& message, std::vector<unique_fd>& into) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      into.emplace_back(fd);
    }
  }
}

}  // namespace

task<result<std::vector<unique_fd>>> recv_fds(int unix_socket, std::span<std::byte> bytes) {
  std::vector<unique_fd> received;
  while (!bytes.empty()) {
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * max_fds_per_message)> control{};
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    auto got = co_await recv_message(unix_socket, message, MSG_CMSG_CLOEXEC);
    if (!got) co_return std::move(got).error();
    collect_fds(message, received);
    if (*got == 0) co_return error{errc::link_lost, "the peer closed the connection"};
    if (message.msg_flags & MSG_CTRUNC)
      co_return error{errc::system_error,
                      "descriptors were lost on the way: raise this process's limit of open files"};
    bytes = bytes.subspan(*got);
  }
  co_return received;
}

}  // namespace chorale
