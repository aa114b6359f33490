// Little-endian bytes in and out, with bounds: what hellos and rendezvous messages are made of.
//
// A reader that runs past the end yields zeroes and remembers it: decode everything, then ask `complete()`
// once.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chorale {

class byte_writer {
 public:
  template <std::integral T>
  void put(T value) {
    auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>(bits & 0xff));
      if constexpr (sizeof(T) > 1) bits = static_cast<std::make_unsigned_t<T>>(bits >> 8);
    }
  }
  void put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  /// A 16-bit length and the characters; longer text is cut.
  void put_text(std::string_view text) {
    text = text.substr(0, UINT16_MAX);
    put(static_cast<std::uint16_t>(text.size()));
    put_bytes(std::as_bytes(std::span{text}));
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::vector<std::byte> take() && noexcept { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class byte_reader {
 public:
  explicit byte_reader(std::span<const std::byte> from) noexcept : rest_{from} {}

  template <std::integral T>
  [[nodiscard]] T take() noexcept {
    const auto from = take_bytes(sizeof(T));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < from.size(); ++i) value |= std::to_integer<std::uint64_t>(from[i]) << (8 * i);
    return static_cast<T>(value);
  }
  [[nodiscard]] std::span<const std::byte> take_bytes(std::size_t count) noexcept {
    if (count > rest_.size()) {
      overrun_ = true;
      rest_ = {};
      return {};
    }
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  [[nodiscard]] std::string take_text() {
    const auto taken = take_bytes(take<std::uint16_t>());
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  /// Everything was there and nothing is left.
  [[nodiscard]] bool complete() const noexcept { return !overrun_ && rest_.empty(); }
  [[nodiscard]] bool overrun() const noexcept { return overrun_; }
  [[nodiscard]] std::size_t left() const noexcept { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
  bool overrun_ = false;
};

}  // namespace chorale
