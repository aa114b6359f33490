#include <chorale/async/io.hpp>
#include <chorale/transport/bootstrap/mate_proof.hpp>
#include <chorale/transport/bootstrap/secret.hpp>
#include <chorale/transport/socket.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <array>

namespace chorale {

bool same_user(int unix_socket) {
  const auto who = credentials_of(unix_socket);
  return who && who->uid == ::geteuid();
}

task<bool> offer_descriptor(int unix_socket) {
  const challenge bytes = random_challenge();
  const unique_fd memory{::memfd_create("chorale-mate", MFD_CLOEXEC)};
  if (!memory || ::pwrite(memory.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    co_return false;
  const std::array<int, 1> fds{memory.get()};
  task<result<void>> send = send_fds(unix_socket, bytes, fds);
  const auto sent = co_await std::move(send);
  if (!sent) co_return false;
  std::byte verdict{};
  task<result<void>> receive = recv_all(unix_socket, &verdict, 1);
  const auto heard = co_await std::move(receive);
  co_return heard&& verdict == std::byte{1};
}

task<bool> check_descriptor(int unix_socket) {
  challenge told{};
  task<result<std::vector<unique_fd>>> receive = recv_fds(unix_socket, told);
  const auto fds = co_await std::move(receive);
  if (!fds) co_return false;
  challenge found{};
  const bool equal =
      fds->size() == 1 &&
      ::pread(fds->front().get(), found.data(), found.size(), 0) == static_cast<ssize_t>(found.size()) &&
      found == told;
  const std::byte verdict{static_cast<unsigned char>(equal)};
  task<result<void>> send = send_all(unix_socket, &verdict, 1);
  const auto sent = co_await std::move(send);
  co_return equal&& sent.has_value();
}

}  // namespace chorale
