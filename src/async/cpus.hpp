// Which CPUs a thread may run on, and whether threads that spin for each other can have one each.
//
// Plain bits, the same on every process of a host: they are sent to host-mates as they are. Any thread;
// nothing fails: what the kernel does not tell is an empty set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chorale {

class allowed_cpus {
 public:
  [[nodiscard]] static allowed_cpus of_this_thread() noexcept;
  void add(std::size_t cpu) noexcept { words_[cpu / 64 % words] |= std::uint64_t{1} << cpu % 64; }
  [[nodiscard]] int count() const noexcept;
  [[nodiscard]] bool overlaps(const allowed_cpus& other) const noexcept;

 private:
  static constexpr std::size_t words = 16;
  std::array<std::uint64_t, words> words_{};
};

/// CPUs that the cgroup's quota pays for; INT_MAX without one.
[[nodiscard]] int cpu_quota() noexcept;
/// CPUs this process may use: those of the thread that asks first, lowered by the quota.
[[nodiscard]] int usable_cpus() noexcept;

/// Whether a thread on `mine` has a CPU of its own if all threads of the host that it waits for spin too, it
/// among them. What counts is who may come to run on the same CPUs, not how many these are: threads that are
/// bound to one CPU each have enough. If it holds for each of them, then there is a CPU for each.
[[nodiscard]] bool one_cpu_each(const allowed_cpus& mine, std::span<const allowed_cpus> threads) noexcept;

/// What came out of that for one communicator.
enum class cpu_share : std::uint8_t { one_each, too_few };

}  // namespace chorale
