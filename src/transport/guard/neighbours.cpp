#include <chorale/transport/guard/neighbours.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace chorale {
namespace {

rank_t wrap(std::int64_t rank, rank_t size) { return static_cast<rank_t>(((rank % size) + size) % size); }

}  // namespace

std::vector<rank_t> control_neighbours(rank_t self, rank_t size) {
  std::vector<rank_t> found;
  for (std::int64_t step = 1; step < size; step *= 2) {
    found.push_back(wrap(self + step, size));
    found.push_back(wrap(self - step, size));
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::erase(found, self);
  return found;
}

rank_t next_hop(rank_t self, rank_t target, rank_t size, unsigned attempt) {
  // The distance, upwards on even attempts and downwards on odd ones, is a sum of powers of two, each of
  // which is an edge. Every hop removes one set bit, whichever it takes; the attempt picks it.
  const bool upwards = attempt % 2 == 0;
  auto distance = static_cast<std::uint32_t>(upwards ? wrap(std::int64_t{target} - self, size)
                                                     : wrap(std::int64_t{self} - target, size));
  unsigned skip = (attempt / 2) % static_cast<unsigned>(std::popcount(distance));
  for (; skip > 0; --skip) distance &= distance - 1;
  const auto step = std::int64_t{1} << std::countr_zero(distance);
  return wrap(upwards ? self + step : self - step, size);
}

}  // namespace chorale
