// What endpoints send each other: a tag, an optional head of a few bytes, and values that are plain bytes or
// a tensor (element type and shape).
//
// A `payload` refers to the sender's memory, which must stay until the await of the send has ended. A
// `peer_message` owns what was received.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/kernels/element.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

class endpoint_peer;

namespace detail {

template <class T>
concept plain_byte = std::same_as<std::remove_cv_t<T>, std::byte> || std::same_as<std::remove_cv_t<T>, char>;

template <class Range>
concept sendable_range =
    std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    (plain_byte<std::ranges::range_value_t<Range>> || element<std::ranges::range_value_t<Range>>);

}  // namespace detail

/// A view of what to send: bytes (std::byte, char) or a tensor of one dimension, or of several with `shaped`.
class payload {
 public:
  static constexpr std::size_t most_dimensions = 8;
  static constexpr std::size_t longest_head = 65535;

  payload() = default;
  template <detail::sendable_range Range>
    requires(!std::same_as<std::remove_cvref_t<Range>, payload>)
  payload(const Range& values) noexcept  // NOLINT(google-explicit-constructor)
      : values_{std::as_bytes(std::span{std::ranges::data(values), std::ranges::size(values)})} {
    using value = std::ranges::range_value_t<Range>;
    if constexpr (!detail::plain_byte<value>) {
      type_ = dtype_of<value>;
      shape_[0] = std::ranges::size(values);
      dimensions_ = 1;
    }
  }
  /// Precondition: at most 8 extents, whose product is the number of values.
  [[nodiscard]] payload shaped(std::span<const std::uint64_t> extents) const noexcept {
    payload other = *this;
    other.dimensions_ = std::min(extents.size(), most_dimensions + 1);
    std::copy_n(extents.begin(), std::min(extents.size(), most_dimensions), other.shape_.begin());
    return other;
  }
  [[nodiscard]] payload shaped(std::initializer_list<std::uint64_t> extents) const noexcept {
    return shaped(std::span{extents.begin(), extents.size()});
  }
  /// A small plain struct that goes before the values, byte by byte: for programs of one byte order.
  template <class Head>
    requires std::is_trivially_copyable_v<Head>
  [[nodiscard]] payload with_head(const Head& head) const noexcept {
    payload other = *this;
    other.head_ = std::as_bytes(std::span{&head, 1});
    return other;
  }

  [[nodiscard]] dtype type() const noexcept { return type_; }
  [[nodiscard]] std::span<const std::uint64_t> shape() const noexcept {
    return std::span{shape_}.first(std::min(dimensions_, most_dimensions));
  }
  [[nodiscard]] std::span<const std::byte> head() const noexcept { return head_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return values_; }
  /// Why this can not be sent; errc::ok if it can.
  [[nodiscard]] error fault() const;

 private:
  std::span<const std::byte> values_;
  std::span<const std::byte> head_;
  std::array<std::uint64_t, most_dimensions> shape_{};
  std::size_t dimensions_ = 0;
  dtype type_ = dtype::none;
};

class peer_message {
 public:
  peer_message() = default;

  [[nodiscard]] std::uint64_t tag() const noexcept { return tag_; }
  /// dtype::none: plain bytes.
  [[nodiscard]] dtype type() const noexcept { return type_; }
  [[nodiscard]] std::span<const std::uint64_t> shape() const noexcept { return shape_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {values_.get(), size_}; }
  [[nodiscard]] std::span<const std::byte> head() const noexcept { return head_; }
  [[nodiscard]] std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(values_.get()), size_};
  }
  /// The tensor's values, in the order of its memory. Throws errc::mismatch when they are of another type.
  template <element T>
  [[nodiscard]] std::span<const T> values() const {
    require(dtype_of<T>);
    return {reinterpret_cast<const T*>(values_.get()), size_ / sizeof(T)};
  }
  /// The head as the struct it was sent from. Throws errc::mismatch when it has another size.
  template <class Head>
    requires std::is_trivially_copyable_v<Head> && std::is_default_constructible_v<Head>
  [[nodiscard]] Head head_as() const {
    require_head(sizeof(Head));
    Head copy;
    std::memcpy(&copy, head_.data(), sizeof copy);
    return copy;
  }

 private:
  friend class endpoint_peer;
  void require(dtype wanted) const;
  void require_head(std::size_t bytes) const;

  std::uint64_t tag_ = 0;
  dtype type_ = dtype::none;
  std::vector<std::uint64_t> shape_;
  std::vector<std::byte> head_;
  std::unique_ptr<std::byte[]> values_;
  std::size_t size_ = 0;
};

/// A tensor received into the caller's memory if it fitted there, else in the message's own.
template <element T>
struct received_tensor {
  peer_message message;       ///< tag, shape, head; owns `values` unless `in_place`
  std::span<const T> values;  ///< all of them
  bool in_place = false;
};

}  // namespace chorale
