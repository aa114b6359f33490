// Sockets as values: an owned descriptor, an address with a text form, and the few settings the library
// makes.
//
// Every descriptor made here is non-blocking and close-on-exec. Functions that can fail return result<T> with
// the call and the address in the detail; none of them blocks, except `address::parse`, which may ask the
// resolver for a host name. Values of these types belong to whoever holds them; nothing here is shared
// between threads.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/async/task.hpp>

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Owns one file descriptor; closes it when destroyed. No kernel operation may refer to it by then.
class unique_fd {
 public:
  unique_fd() = default;
  explicit unique_fd(int fd) noexcept : fd_{fd} {}
  unique_fd(unique_fd&& other) noexcept : fd_{other.release()} {}
  unique_fd& operator=(unique_fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~unique_fd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

/// An IPv4, IPv6 or unix address. Text forms: "10.0.0.1:7000", "[fd00::1]:7000", "host.name:7000",
/// "unix:@abstract-name", "unix:/a/path".
class address {
 public:
  address() = default;
  address(const sockaddr* from, socklen_t size) noexcept;

  [[nodiscard]] static result<address> parse(std::string_view text);
  [[nodiscard]] static address unix_abstract(std::string_view name) noexcept;
  [[nodiscard]] static address loopback(std::uint16_t port) noexcept;

  [[nodiscard]] const sockaddr* data() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t size() const noexcept { return size_; }
  [[nodiscard]] int family() const noexcept { return storage_.ss_family; }
  [[nodiscard]] bool is_unix() const noexcept { return family() == AF_UNIX; }
  /// Reachable from this host only: a unix address, 127.0.0.0/8 or ::1.
  [[nodiscard]] bool is_local() const noexcept;
  [[nodiscard]] bool is_wildcard() const noexcept;
  [[nodiscard]] std::uint16_t port() const noexcept;
  void set_port(std::uint16_t port) noexcept;
  [[nodiscard]] std::string text() const;
  /// Equal but for the port.
  [[nodiscard]] bool same_host(const address& other) const noexcept;

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

/// A listening socket; port 0 picks a free one (see `local_address`).
[[nodiscard]] result<unique_fd> listen_on(const address& where, int backlog = SOMAXCONN);
/// An unconnected stream socket of the address's family.
[[nodiscard]] result<unique_fd> open_stream(const address& towards);
[[nodiscard]] address local_address(int fd) noexcept;
[[nodiscard]] address peer_address(int fd) noexcept;

/// Which network interfaces may carry traffic, from CHORALE_SOCKET_IFNAME: "eth,ib" = names that begin so,
/// "=eth0" = exactly this one, "^docker,lo" = all but these. Empty: every interface but loopback and virtual
/// bridges.
class interface_filter {
 public:
  interface_filter() = default;
  explicit interface_filter(std::string_view text);
  [[nodiscard]] bool allows(std::string_view interface_name) const noexcept;
  [[nodiscard]] bool is_default() const noexcept { return names_.empty(); }

 private:
  std::vector<std::string> names_;
  bool excluding_ = false;
  bool exactly_ = false;
};

/// Addresses (port 0) of the interfaces that are up and allowed; no IPv6 link-local ones.
[[nodiscard]] result<std::vector<address>> interface_addresses(const interface_filter& filter);

/// TCP_NODELAY, keepalive, and, between sockets of one host, a congestion control that does not pace.
/// Failures of single settings are harmless and ignored.
void tune_tcp(int fd) noexcept;

struct peer_credentials {
  pid_t pid = 0;  ///< in this process's pid namespace; 0 where it is not visible
  uid_t uid = 0;
};
/// Who is on the other end of a unix socket.
[[nodiscard]] result<peer_credentials> credentials_of(int unix_socket);
/// A descriptor for the process on the other end; empty where the kernel offers none.
[[nodiscard]] unique_fd process_of(int unix_socket, const peer_credentials& who) noexcept;

/// Most descriptors in one message.
inline constexpr std::size_t max_fds_per_message = 64;

/// Sends `bytes` (at least one) with `fds` attached to the first byte.
[[nodiscard]] task<result<void>> send_fds(int unix_socket, std::span<const std::byte> bytes,
                                          std::span<const int> fds);
/// Receives exactly `bytes.size()` bytes and the descriptors attached to them.
[[nodiscard]] task<result<std::vector<unique_fd>>> recv_fds(int unix_socket, std::span<std::byte> bytes);

}  // namespace chorale
