#include <chorale/kernels/host_accumulate.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace chorale {
namespace {

/// So many are combined at once; those that somebody changed meanwhile are tried again one by one.
constexpr std::size_t block = 64;

template <class Word>
void accumulate_words(std::byte* target, const std::byte* in, std::size_t count,
                      host_reduction combine) noexcept {
  auto* const words = reinterpret_cast<Word*>(target);
  std::array<Word, block> before;
  std::array<Word, block> after;
  const auto bytes_of = [](auto& word) { return reinterpret_cast<std::byte*>(&word); };
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t n = std::min(block, count - begin);
    const std::byte* const addends = in + begin * sizeof(Word);
    for (std::size_t i = 0; i < n; ++i)
      before[i] = std::atomic_ref{words[begin + i]}.load(std::memory_order_relaxed);
    combine(bytes_of(after[0]), bytes_of(before[0]), addends, n);
    for (std::size_t i = 0; i < n; ++i) {
      std::atomic_ref word{words[begin + i]};
      while (!word.compare_exchange_weak(before[i], after[i], std::memory_order_relaxed))
        combine(bytes_of(after[i]), bytes_of(before[i]), addends + i * sizeof(Word), 1);
    }
  }
}

}  // namespace

void accumulate_atomically(std::byte* target, const std::byte* in, std::size_t count,
                           std::size_t element_bytes, host_reduction combine) noexcept {
  switch (element_bytes) {
    case 1:
      return accumulate_words<std::uint8_t>(target, in, count, combine);
    case 2:
      return accumulate_words<std::uint16_t>(target, in, count, combine);
    case 4:
      return accumulate_words<std::uint32_t>(target, in, count, combine);
    default:
      return accumulate_words<std::uint64_t>(target, in, count, combine);
  }
}

}  // namespace chorale
