#include <chorale/async/io.hpp>
#include <chorale/async/scope.hpp>
#include <chorale/transport/bootstrap/bytes.hpp>
#include <chorale/transport/bootstrap/host_exchange.hpp>

#include <fcntl.h>

#include <array>
#include <cerrno>

namespace chorale {
namespace {

constexpr std::size_t header_size = 24;

template <class T>
task<void> keep(task<result<T>> work, result<T>& into) {
  into = co_await std::move(work);
}

}  // namespace

host_exchange::host_exchange(const world& w) : self_{w.rank} {
  for (const peer& p : w.peers) {
    if (!p.host_mate) continue;
    if (p.rank == w.rank) position_ = mates_.size();
    mates_.push_back(p.rank);
    sockets_.push_back(p.mate.get());
  }
}

task<result<void>> host_exchange::send_to(std::size_t position, kind what, std::span<const std::byte> bytes,
                                          std::span<const int> fds) {
  byte_writer header;
  header.put(static_cast<std::uint32_t>(what));
  header.put(static_cast<std::uint32_t>(fds.size()));
  header.put(calls_);
  header.put(static_cast<std::uint64_t>(bytes.size()));
  const int socket = sockets_[position];
  task<result<void>> head = send_fds(socket, header.bytes(), fds);
  auto sent = co_await std::move(head);
  if (!sent || bytes.empty()) co_return sent;
  task<result<void>> body = send_all(socket, bytes.data(), bytes.size());
  auto rest = co_await std::move(body);
  co_return rest;
}

task<result<host_exchange::arrival>> host_exchange::receive_from(std::size_t position, kind what) {
  const int socket = sockets_[position];
  const rank_t from = mates_[position];
  std::array<std::byte, header_size> header{};
  task<result<std::vector<unique_fd>>> head = recv_fds(socket, header);
  auto fds = co_await std::move(head);
  if (!fds) co_return std::move(fds).error();
  byte_reader in{header};
  const auto theirs = in.take<std::uint32_t>();
  const auto fd_count = in.take<std::uint32_t>();
  const auto call = in.take<std::uint64_t>();
  const auto size = in.take<std::uint64_t>();
  if (theirs != static_cast<std::uint32_t>(what) || call != calls_ || fd_count != fds->size() ||
      size > most_bytes)
    co_return error{
        errc::mismatch,
        "rank " + std::to_string(from) + " made another host exchange than rank " + std::to_string(self_),
        from};
  arrival got;
  got.fds = *std::move(fds);
  got.bytes.resize(static_cast<std::size_t>(size));
  task<result<void>> body = recv_all(socket, got.bytes.data(), got.bytes.size());
  const auto rest = co_await std::move(body);
  if (!rest) co_return rest.error();
  co_return got;
}

task<result<std::vector<host_exchange::arrival>>> host_exchange::exchange(kind what,
                                                                          std::span<const std::byte> bytes,
                                                                          std::span<const int> fds) {
  if (bytes.size() > most_bytes || fds.size() > max_fds_per_message)
    co_return error{errc::invalid_argument,
                    "a host exchange carries at most 16 MiB and 64 descriptors per rank"};
  ++calls_;
  const std::size_t count = mates_.size();
  std::vector<result<void>> sent(count);
  std::vector<result<arrival>> received;
  for (std::size_t i = 0; i < count; ++i) received.emplace_back(errc::cancelled);
  const environment& here = co_await this_environment{};
  scope both_ways{here};
  for (std::size_t i = 0; i < count; ++i) {
    if (i == position_) continue;
    both_ways.spawn(keep(send_to(i, what, bytes, fds), sent[i]));
    both_ways.spawn(keep(receive_from(i, what), received[i]));
  }
  co_await both_ways.join();
  std::vector<arrival> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (i == position_) continue;
    if (!received[i] && received[i].error().code() != errc::mismatch &&
        received[i].error().code() != errc::timed_out && received[i].error().code() != errc::cancelled)
      co_return error{
          errc::link_lost,
          "rank " + std::to_string(mates_[i]) + " in a host exchange: " + received[i].error().summary(),
          mates_[i]};
    if (!received[i]) co_return received[i].error();
    if (!sent[i]) co_return sent[i].error();
    all[i] = *std::move(received[i]);
  }
  co_return all;
}

task<result<std::vector<std::vector<std::byte>>>> host_exchange::all_gather_bytes(
    std::span<const std::byte> mine) {
  task<result<std::vector<arrival>>> exchanging = exchange(kind::bytes, mine, {});
  auto all = co_await std::move(exchanging);
  if (!all) co_return std::move(all).error();
  std::vector<std::vector<std::byte>> bytes;
  for (arrival& a : *all) bytes.push_back(std::move(a.bytes));
  bytes[position_].assign(mine.begin(), mine.end());
  co_return bytes;
}

task<result<std::vector<std::vector<unique_fd>>>> host_exchange::all_gather_fds(std::span<const int> mine) {
  task<result<std::vector<arrival>>> exchanging = exchange(kind::fds, {}, mine);
  auto all = co_await std::move(exchanging);
  if (!all) co_return std::move(all).error();
  std::vector<std::vector<unique_fd>> fds;
  for (arrival& a : *all) fds.push_back(std::move(a.fds));
  for (const int fd : mine) {
    unique_fd own{::fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    if (!own) co_return error::from_os(errno, "fcntl F_DUPFD_CLOEXEC");
    fds[position_].push_back(std::move(own));
  }
  co_return fds;
}

task<result<void>> host_exchange::barrier() {
  task<result<std::vector<arrival>>> exchanging = exchange(kind::barrier, {}, {});
  const auto all = co_await std::move(exchanging);
  if (!all) co_return all.error();
  co_return result<void>{};
}

}  // namespace chorale
