// GPU memory and streams as arguments of calls: what says that a call is one on device memory.
//
// No CUDA header is needed. Both are plain values; the memory is the caller's until the operation has ended.
#pragma once

#include <chorale/kernels/element.hpp>

#include <cstddef>
#include <type_traits>

namespace chorale {

/// `count` elements of this process's GPU (cudaMalloc or anything the GPU addresses), aligned to the element.
/// Inputs may be const. The host never reads or writes through it.
///
///   chorale::device_span gradient{pointer, count};  // device_span<float>, from a float*
template <class T>
  requires element<std::remove_const_t<T>>
class device_span {
 public:
  constexpr device_span() noexcept = default;
  constexpr device_span(T* data, std::size_t count) noexcept : data_{data}, count_{count} {}
  constexpr operator device_span<const T>() const noexcept  // NOLINT(google-explicit-constructor)
    requires(!std::is_const_v<T>)
  {
    return {data_, count_};
  }
  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return count_; }
  /// The `count` elements from `first` on, which must be there.
  [[nodiscard]] constexpr device_span subspan(std::size_t first, std::size_t count) const noexcept {
    return {data_ + first, count};
  }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

/// A CUDA stream (cudaStream_t or CUstream); null is the legacy default stream.
struct on {
  explicit on(void* cuda_stream = nullptr) noexcept : stream{cuda_stream} {}
  void* stream;
};

namespace detail {
template <class T>
inline constexpr bool is_device_span = false;
template <class T>
inline constexpr bool is_device_span<device_span<T>> = true;
}  // namespace detail

template <class Range>
concept device_buffer = detail::is_device_span<std::remove_cvref_t<Range>>;

}  // namespace chorale
