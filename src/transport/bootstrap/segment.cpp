#include <chorale/transport/bootstrap/bytes.hpp>
#include <chorale/transport/bootstrap/segment.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace chorale {
namespace {

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

result<std::byte*> map_shared(int fd, std::size_t size) {
  void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED)
    return error::from_os(errno, "mmap of " + std::to_string(size) + " bytes of shared memory");
  return static_cast<std::byte*>(at);
}

std::vector<std::byte> size_bytes(std::size_t size) {
  byte_writer out;
  out.put(static_cast<std::uint64_t>(size));
  return std::move(out).take();
}

task<result<std::vector<std::uint64_t>>> gather_sizes(host_exchange& among, std::size_t size) {
  const std::vector<std::byte> mine = size_bytes(size);
  task<result<std::vector<std::vector<std::byte>>>> gathering = among.all_gather_bytes(mine);
  const auto all = co_await std::move(gathering);
  if (!all) co_return all.error();
  std::vector<std::uint64_t> sizes;
  for (const auto& bytes : *all) {
    byte_reader in{bytes};
    sizes.push_back(in.take<std::uint64_t>());
    if (!in.complete()) co_return error{errc::protocol_error, "a host mate sent a malformed segment size"};
  }
  co_return sizes;
}

error wrong_count(rank_t from) {
  return error{errc::protocol_error,
               "rank " + std::to_string(from) + " passed an unexpected number of descriptors", from};
}

}  // namespace

segment::segment(segment&& other) noexcept
    : memory_{std::move(other.memory_)},
      data_{std::exchange(other.data_, nullptr)},
      size_{std::exchange(other.size_, 0)} {}

segment& segment::operator=(segment&& other) noexcept {
  segment taken{std::move(other)};
  std::swap(memory_, taken.memory_);
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  return *this;
}

segment::~segment() {
  if (data_) ::munmap(data_, size_);
}

result<segment> segment::create(std::size_t size) {
  if (size == 0) return error{errc::invalid_argument, "a shared segment has at least one byte"};
  unique_fd memory{::memfd_create("chorale", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!memory) return error::from_os(errno, "memfd_create");
  if (::ftruncate(memory.get(), static_cast<off_t>(size)) != 0)
    return error::from_os(errno, "ftruncate of a shared segment to " + std::to_string(size) + " bytes");
  if (::fcntl(memory.get(), F_ADD_SEALS, seals) != 0) return error::from_os(errno, "fcntl F_ADD_SEALS");
  const auto data = map_shared(memory.get(), size);
  if (!data) return data.error();
  return segment{std::move(memory), *data, size};
}

result<segment> segment::map(unique_fd memory, std::size_t size) {
  struct stat about{};
  const int found = ::fcntl(memory.get(), F_GET_SEALS);
  if (::fstat(memory.get(), &about) != 0 || found < 0 || (found & seals) != seals || size == 0 ||
      static_cast<std::size_t>(about.st_size) != size)
    return error{errc::protocol_error,
                 "a shared segment of " + std::to_string(size) + " sealed bytes was expected, and " +
                     std::to_string(about.st_size) + " bytes came, or it was not sealed"};
  const auto data = map_shared(memory.get(), size);
  if (!data) return data.error();
  return segment{std::move(memory), *data, size};
}

task<result<std::vector<segment>>> exchange_segments(host_exchange& among, std::size_t size) {
  auto own = segment::create(size);
  if (!own) co_return std::move(own).error();
  task<result<std::vector<std::uint64_t>>> measuring = gather_sizes(among, size);
  const auto sizes = co_await std::move(measuring);
  if (!sizes) co_return sizes.error();
  const int mine = own->fd();
  task<result<std::vector<std::vector<unique_fd>>>> passing = among.all_gather_fds({&mine, 1});
  auto fds = co_await std::move(passing);
  if (!fds) co_return std::move(fds).error();
  std::vector<segment> all(fds->size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == among.position()) continue;
    if ((*fds)[i].size() != 1) co_return wrong_count(among.mates()[i]);
    auto mapped = segment::map(std::move((*fds)[i].front()), static_cast<std::size_t>((*sizes)[i]));
    if (!mapped) co_return std::move(mapped).error();
    all[i] = *std::move(mapped);
  }
  all[among.position()] = *std::move(own);
  co_return all;
}

task<result<segment>> share_segment(host_exchange& among, std::size_t size) {
  task<result<std::vector<std::uint64_t>>> measuring = gather_sizes(among, size);
  const auto sizes = co_await std::move(measuring);
  if (!sizes) co_return sizes.error();
  for (std::size_t i = 0; i < sizes->size(); ++i)
    if ((*sizes)[i] != size)
      co_return error{errc::mismatch,
                      "rank " + std::to_string(among.mates()[i]) + " wants a shared segment of " +
                          std::to_string((*sizes)[i]) + " bytes, this rank one of " + std::to_string(size),
                      among.mates()[i]};
  segment made;
  std::vector<int> passed;
  if (among.position() == 0) {
    auto own = segment::create(size);
    if (!own) co_return std::move(own).error();
    made = *std::move(own);
    passed.push_back(made.fd());
  }
  task<result<std::vector<std::vector<unique_fd>>>> passing = among.all_gather_fds(passed);
  auto fds = co_await std::move(passing);
  if (!fds) co_return std::move(fds).error();
  if (made) co_return made;
  if (fds->front().size() != 1) co_return wrong_count(among.mates().front());
  auto mapped = segment::map(std::move(fds->front().front()), size);
  co_return mapped;
}

task<result<std::vector<unique_fd>>> exchange_doorbells(host_exchange& among, int own) {
  task<result<std::vector<std::vector<unique_fd>>>> passing = among.all_gather_fds({&own, 1});
  auto fds = co_await std::move(passing);
  if (!fds) co_return std::move(fds).error();
  std::vector<unique_fd> bells;
  for (std::size_t i = 0; i < fds->size(); ++i) {
    if ((*fds)[i].size() != 1) co_return wrong_count(among.mates()[i]);
    bells.push_back(std::move((*fds)[i].front()));
  }
  co_return bells;
}

}  // namespace chorale
