#include <chorale/async/cpus.hpp>

#include <sched.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <string>

namespace chorale {

allowed_cpus allowed_cpus::of_this_thread() noexcept {
  allowed_cpus found;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  static_assert(CPU_SETSIZE == words * 64);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return found;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) found.add(cpu);
  return found;
}

int allowed_cpus::count() const noexcept {
  int sum = 0;
  for (const std::uint64_t word : words_) sum += std::popcount(word);
  return sum;
}

bool allowed_cpus::overlaps(const allowed_cpus& other) const noexcept {
  for (std::size_t i = 0; i < words; ++i)
    if ((words_[i] & other.words_[i]) != 0) return true;
  return false;
}

int cpu_quota() noexcept {
  // cgroup v2 only: "max 100000" or "QUOTA PERIOD". Version 1 hosts keep the affinity mask's answer.
  std::ifstream file{"/sys/fs/cgroup/cpu.max"};
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return INT_MAX;
  return std::max(1, static_cast<int>(std::strtod(quota.c_str(), nullptr) / period));
}

int usable_cpus() noexcept {
  static const int found = std::clamp(allowed_cpus::of_this_thread().count(), 1, std::max(1, cpu_quota()));
  return found;
}

bool one_cpu_each(const allowed_cpus& mine, std::span<const allowed_cpus> threads) noexcept {
  const auto rivals =
      std::ranges::count_if(threads, [&](const allowed_cpus& theirs) { return theirs.overlaps(mine); });
  static const int quota = cpu_quota();
  // An empty set: nothing is known, and nobody may be there.
  return rivals != 0 && rivals <= mine.count() && threads.size() <= static_cast<std::size_t>(quota);
}

}  // namespace chorale
