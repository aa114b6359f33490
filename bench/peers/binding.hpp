// Every rank of every contestant runs on the same CPUs: an equal share of those the program may use, one each
// where there are fewer. As `chorale run --bind core` does.
#pragma once

#include <sched.h>

#include <cstddef>
#include <vector>

namespace chorale::bench::peers {

/// For rank `rank` of `ranks` on this host. To be called before a library starts threads, which inherit it.
inline void bind_to_share(int rank, int ranks) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return;
  std::vector<std::size_t> usable;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) usable.push_back(cpu);
  if (usable.empty()) return;
  const std::size_t mine = static_cast<std::size_t>(rank);
  const std::size_t share = usable.size() / static_cast<std::size_t>(ranks);
  CPU_ZERO(&mask);
  if (share == 0)
    CPU_SET(usable[mine % usable.size()], &mask);
  else
    for (std::size_t i = 0; i < share; ++i) CPU_SET(usable[mine * share + i], &mask);
  (void)::sched_setaffinity(0, sizeof mask, &mask);
}

}  // namespace chorale::bench::peers
