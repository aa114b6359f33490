// Device memory that other processes on the host can map, and mappings of theirs. RAII, one owner each.
//
// A region's physical memory lives until its last mapping anywhere is gone, so a peer that dies or leaves
// never turns a running kernel's stores into faults. Calls need a current context on the device. Failures are
// errc::gpu_error or out_of_memory.
#pragma once

#include <chorale/driver/cuda.hpp>

#include <utility>

namespace chorale::cuda {

/// A mapping into this process of device memory, own or imported.
class mapped_memory {
 public:
  mapped_memory() = default;
  mapped_memory(mapped_memory&& other) noexcept { swap(other); }
  mapped_memory& operator=(mapped_memory&& other) noexcept {
    mapped_memory{std::move(other)}.swap(*this);
    return *this;
  }
  ~mapped_memory();

  /// Zeroed by the caller if need be. `bytes` must be a multiple of the granularity.
  static result<mapped_memory> create(const cuda_driver& driver, int device, std::size_t bytes);
  /// Maps what a peer exported; reachable from `device`. Does not take the descriptor.
  static result<mapped_memory> import(const cuda_driver& driver, int device, int fd, std::size_t bytes);
  /// `bytes` rounded up to what the device can map.
  static result<std::size_t> round_up(const cuda_driver& driver, int device, std::size_t bytes);

  /// A descriptor for another process; the caller closes it.
  [[nodiscard]] result<int> export_fd() const;
  [[nodiscard]] device_pointer address() const noexcept { return address_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  void swap(mapped_memory& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    std::swap(has_handle_, other.has_handle_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(is_mapped_, other.is_mapped_);
  }

 private:
  result<void> map(std::size_t bytes);

  const cuda_driver* driver_ = nullptr;
  int device_ = -1;
  memory_handle handle_ = 0;
  bool has_handle_ = false;
  device_pointer address_ = 0;
  std::size_t bytes_ = 0;
  bool is_mapped_ = false;
};

}  // namespace chorale::cuda
