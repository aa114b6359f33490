// Memory as an application has it: pages of its own, registered nowhere, every page touched.
//
// The peer programs use it too, and rewrite it before each call alike: needs the standard library only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace chorale::bench {

class plain_buffer {
 public:
  plain_buffer() = default;
  explicit plain_buffer(std::size_t bytes)
      : bytes_{(bytes + page - 1) / page * page},
        memory_{bytes_ == 0 ? nullptr : static_cast<std::byte*>(std::aligned_alloc(page, bytes_))} {
    if (bytes_ != 0 && !memory_) throw std::bad_alloc{};
    clear(bytes_);
  }

  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  void clear(std::size_t bytes) const noexcept {
    if (bytes != 0) std::memset(memory_.get(), 0, bytes);
  }

 private:
  static constexpr std::size_t page = 4096;
  struct freeing {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte, freeing> memory_;
};

/// Writes zeros into every cache line, so that the next call finds an input that its owner has just made.
/// A word per line: what counts is whose cache the line is in.
inline void rewrite(std::byte* memory, std::size_t bytes) noexcept {
  constexpr std::size_t line = 64;
  for (std::size_t at = 0; at < bytes; at += line)
    *static_cast<volatile std::uint8_t*>(static_cast<void*>(memory + at)) = 0;
}

}  // namespace chorale::bench
