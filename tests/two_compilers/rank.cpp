// One rank of a job whose ranks come from different compilers; .ci/two-compilers starts them.
//
//   rank BOARD    BOARD is a file of 8 zero bytes, shared by the ranks of one job on one host
//
// Looks at values that every rank can compute by itself (sums of whole numbers, what a neighbour sends), at
// barriers through the board, and prints a digest of floating-point results, which must be the same on every
// rank, and in deterministic mode in every job. Ends with 1 and a line where something is wrong.
#include <chorale/chorale.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <random>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace chorale;

#ifdef __clang__
constexpr const char* compiler = "clang";
#else
constexpr const char* compiler = "g++";
#endif

// From one line of the tiny exchange over eager messages to announced ones; odd ones leave tails to the
// vectors.
constexpr std::size_t counts[] = {1, 3, 100, 1000, 4097, 300'001};

void require(bool good, std::size_t which,
             const std::source_location& where = std::source_location::current()) {
  if (!good)
    throw std::runtime_error{"line " + std::to_string(where.line()) + " found a wrong value, number " +
                             std::to_string(which)};
}

/// Counts arrivals of all ranks.
class board {
 public:
  explicit board(const char* path) {
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    void* const mapped =
        file < 0 ? MAP_FAILED
                 : ::mmap(nullptr, sizeof *arrivals_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) ::close(file);
    if (mapped == MAP_FAILED) throw std::runtime_error{std::string{"cannot map the board "} + path};
    arrivals_ = static_cast<std::uint64_t*>(mapped);
  }
  board(const board&) = delete;
  board& operator=(const board&) = delete;
  ~board() { ::munmap(arrivals_, sizeof *arrivals_); }
  void arrive() noexcept { ++std::atomic_ref{*arrivals_}; }
  [[nodiscard]] std::uint64_t arrived() const noexcept { return std::atomic_ref{*arrivals_}.load(); }

 private:
  std::uint64_t* arrivals_ = nullptr;
};

/// FNV-1a of everything that was added.
class digest {
 public:
  template <class T>
  void add(const std::vector<T>& values) noexcept {
    for (const std::byte b : std::as_bytes(std::span{values}))
      hash_ = (hash_ ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3;
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

task<void> sums_of_whole_numbers(communicator& comm) {
  const auto ranks = static_cast<std::int64_t>(comm.size());
  for (const std::size_t count : counts) {
    std::vector<std::int64_t> numbers(count);
    std::vector<float> same(count);
    for (std::size_t i = 0; i < count; ++i) {
      numbers[i] = static_cast<std::int64_t>(i % 1000) * (comm.rank() + 1);
      same[i] = static_cast<float>(numbers[i]);
    }
    ticket first = comm.all_reduce(numbers);
    ticket second = comm.all_reduce(same);
    co_await std::move(first);
    co_await std::move(second);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t expected = static_cast<std::int64_t>(i % 1000) * ranks * (ranks + 1) / 2;
      require(numbers[i] == expected, i);
      require(same[i] == static_cast<float>(expected), i);
    }
  }
}

task<void> messages_around(communicator& comm) {
  const rank_t next = (comm.rank() + 1) % comm.size();
  const rank_t before = (comm.rank() + comm.size() - 1) % comm.size();
  const auto letter = [](rank_t from, std::size_t at) {
    return static_cast<std::uint32_t>(at * 2654435761U) + static_cast<std::uint32_t>(from);
  };
  for (const std::size_t count : counts) {
    std::vector<std::uint32_t> out(count);
    std::vector<std::uint32_t> in(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = letter(comm.rank(), i);
    task<void> both = comm.batch(send(out, next), recv(in, before));
    co_await std::move(both);
    for (std::size_t i = 0; i < count; ++i) require(in[i] == letter(before, i), i);
  }
}

task<void> nobody_leaves_before_all_came(communicator& comm, board& shared) {
  const auto ranks = static_cast<std::uint64_t>(comm.size());
  for (std::uint64_t round = 1; round <= 300; ++round) {
    shared.arrive();
    ticket meeting = comm.barrier();
    co_await std::move(meeting);
    require(shared.arrived() >= round * ranks, round);
  }
}

// Values of many magnitudes, so that another order of additions rounds differently. Made of whole numbers and
// powers of two only, which no compiler computes in another way.
template <class T>
std::vector<T> uneven_values(rank_t rank, std::size_t count) {
  std::mt19937 random{static_cast<std::uint32_t>(1000 * rank) + static_cast<std::uint32_t>(count)};
  std::vector<T> values(count);
  for (T& v : values) {
    const float digits = static_cast<float>(static_cast<std::int32_t>(random() >> 8)) - 8388608.0F;
    const float scale = 1.0F / static_cast<float>(1U << (10 + random() % 16));
    v = static_cast<T>(digits * scale);
  }
  return values;
}

template <class T>
task<void> add_sums(communicator& comm, digest& all) {
  for (const std::size_t count : counts) {
    std::vector<T> values = uneven_values<T>(comm.rank(), count);
    ticket summing = comm.all_reduce(values, sum);
    co_await std::move(summing);
    all.add(values);
  }
}

task<void> digest_of_uneven_sums(communicator& comm) {
  digest all;
  task<void> narrow = add_sums<f16>(comm, all);
  co_await std::move(narrow);
  task<void> brain = add_sums<bf16>(comm, all);
  co_await std::move(brain);
  task<void> plain = add_sums<float>(comm, all);
  co_await std::move(plain);
  task<void> wide = add_sums<double>(comm, all);
  co_await std::move(wide);
  std::printf("fnv1a:%016llx\n", static_cast<unsigned long long>(all.value()));
}

task<void> look_at_everything(const char* board_path) {
  board shared{board_path};
  task<communicator> joining = communicator::join();
  communicator comm = co_await std::move(joining);
  std::printf("rank %d of %d: %s, rank 0 over %s\n", comm.rank(), comm.size(), compiler,
              std::string{comm.transport_to(0)}.c_str());
  task<void> sums = sums_of_whole_numbers(comm);
  co_await std::move(sums);
  task<void> messages = messages_around(comm);
  co_await std::move(messages);
  task<void> barriers = nobody_leaves_before_all_came(comm, shared);
  co_await std::move(barriers);
  task<void> digests = digest_of_uneven_sums(comm);
  co_await std::move(digests);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s BOARD\n", argv[0]);
    return 2;
  }
  chorale::engine loop;
  try {
    loop.run(look_at_everything(argv[1]));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", compiler, e.what());
    return 1;
  }
}
