#include <chorale/kernels/peer_memory.hpp>

namespace chorale::cuda {
namespace {

memory_properties shareable_on(int device) {
  memory_properties p{};
  p.type = allocation_pinned;
  p.handle_types = handle_posix_fd;
  p.location = {location_device, device};
  return p;
}

}  // namespace

mapped_memory::~mapped_memory() {
  if (driver_ == nullptr) return;
  if (is_mapped_) driver_->memory_unmap(address_, bytes_);
  if (address_ != 0) driver_->address_free(address_, bytes_);
  if (has_handle_) driver_->memory_release(handle_);
}

result<std::size_t> mapped_memory::round_up(const cuda_driver& driver, int device, std::size_t bytes) {
  const memory_properties p = shareable_on(device);
  std::size_t unit = 0;
  const auto asked = check(driver, driver.memory_granularity(&unit, &p, granularity_minimum),
                           "cuMemGetAllocationGranularity", device);
  if (!asked) return asked.error();
  return (bytes + unit - 1) / unit * unit;
}

result<mapped_memory> mapped_memory::create(const cuda_driver& driver, int device, std::size_t bytes) {
  mapped_memory m;
  m.driver_ = &driver;
  m.device_ = device;
  const memory_properties p = shareable_on(device);
  if (auto made = check(driver, driver.memory_create(&m.handle_, bytes, &p, 0), "cuMemCreate", device); !made)
    return std::move(made).error();
  m.has_handle_ = true;
  if (auto mapped = m.map(bytes); !mapped) return std::move(mapped).error();
  return m;
}

result<mapped_memory> mapped_memory::import(const cuda_driver& driver, int device, int fd,
                                            std::size_t bytes) {
  mapped_memory m;
  m.driver_ = &driver;
  m.device_ = device;
  // the driver wants the descriptor itself in the pointer argument
  void* os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  if (auto got = check(driver, driver.memory_import(&m.handle_, os_handle, handle_posix_fd),
                       "cuMemImportFromShareableHandle", device);
      !got)
    return std::move(got).error();
  m.has_handle_ = true;
  if (auto mapped = m.map(bytes); !mapped) return std::move(mapped).error();
  return m;
}

result<void> mapped_memory::map(std::size_t bytes) {
  bytes_ = bytes;
  if (auto r = check(*driver_, driver_->address_reserve(&address_, bytes, 0, 0, 0), "cuMemAddressReserve",
                     device_);
      !r)
    return r;
  if (auto r = check(*driver_, driver_->memory_map(address_, bytes, 0, handle_, 0), "cuMemMap", device_); !r)
    return r;
  is_mapped_ = true;
  const memory_access access{{location_device, device_}, access_read_write};
  return check(*driver_, driver_->memory_set_access(address_, bytes, &access, 1), "cuMemSetAccess", device_);
}

result<int> mapped_memory::export_fd() const {
  int fd = -1;
  auto got = check(*driver_, driver_->memory_export(&fd, handle_, handle_posix_fd, 0),
                   "cuMemExportToShareableHandle", device_);
  if (!got) return std::move(got).error();
  return fd;
}

}  // namespace chorale::cuda
