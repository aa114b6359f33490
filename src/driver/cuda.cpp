#include <chorale/driver/cuda.hpp>

#include <dlfcn.h>

#include <mutex>
#include <string>

namespace chorale::cuda {
namespace {

/// Fills the table from an opened libcuda; remembers the first symbol that is missing.
class symbols {
 public:
  explicit symbols(void* library) : library_{library} {}

  template <class Function>
  void take(Function*& slot, const char* name) {
    slot = reinterpret_cast<Function*>(dlsym(library_, name));
    if (slot == nullptr && missing_ == nullptr) missing_ = name;
  }
  [[nodiscard]] const char* missing() const { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

// The suffixes are the ABI: a symbol with its suffix never changes its signature.
void take_all(cuda_driver& t, symbols& from) {
  from.take(t.init, "cuInit");
  from.take(t.driver_get_version, "cuDriverGetVersion");
  from.take(t.get_error_name, "cuGetErrorName");
  from.take(t.device_get_count, "cuDeviceGetCount");
  from.take(t.device_get, "cuDeviceGet");
  from.take(t.device_get_name, "cuDeviceGetName");
  from.take(t.device_get_uuid, "cuDeviceGetUuid_v2");
  from.take(t.device_get_attribute, "cuDeviceGetAttribute");
  from.take(t.device_get_peer_attribute, "cuDeviceGetP2PAttribute");
  from.take(t.primary_context_retain, "cuDevicePrimaryCtxRetain");
  from.take(t.primary_context_release, "cuDevicePrimaryCtxRelease_v2");
  from.take(t.context_get_current, "cuCtxGetCurrent");
  from.take(t.context_push, "cuCtxPushCurrent_v2");
  from.take(t.context_pop, "cuCtxPopCurrent_v2");
  from.take(t.module_load_data, "cuModuleLoadData");
  from.take(t.module_unload, "cuModuleUnload");
  from.take(t.module_get_function, "cuModuleGetFunction");
  from.take(t.function_set_attribute, "cuFuncSetAttribute");
  from.take(t.launch_kernel, "cuLaunchKernelEx");
  from.take(t.memory_alloc, "cuMemAlloc_v2");
  from.take(t.memory_free, "cuMemFree_v2");
  from.take(t.host_alloc, "cuMemHostAlloc");
  from.take(t.host_free, "cuMemFreeHost");
  from.take(t.host_get_device_pointer, "cuMemHostGetDevicePointer_v2");
  from.take(t.memset_d8_async, "cuMemsetD8Async");
  from.take(t.copy_to_device_async, "cuMemcpyHtoDAsync_v2");
  from.take(t.copy_to_host_async, "cuMemcpyDtoHAsync_v2");
  from.take(t.memory_granularity, "cuMemGetAllocationGranularity");
  from.take(t.memory_create, "cuMemCreate");
  from.take(t.memory_release, "cuMemRelease");
  from.take(t.memory_export, "cuMemExportToShareableHandle");
  from.take(t.memory_import, "cuMemImportFromShareableHandle");
  from.take(t.address_reserve, "cuMemAddressReserve");
  from.take(t.address_free, "cuMemAddressFree");
  from.take(t.memory_map, "cuMemMap");
  from.take(t.memory_unmap, "cuMemUnmap");
  from.take(t.memory_set_access, "cuMemSetAccess");
  from.take(t.stream_create, "cuStreamCreate");
  from.take(t.stream_destroy, "cuStreamDestroy_v2");
  from.take(t.stream_synchronize, "cuStreamSynchronize");
  from.take(t.stream_query, "cuStreamQuery");
  from.take(t.stream_wait_event, "cuStreamWaitEvent");
  from.take(t.stream_wait_value64, "cuStreamWaitValue64_v2");
  from.take(t.stream_capture_info, "cuStreamGetCaptureInfo_v2");
  from.take(t.thread_exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  from.take(t.launch_host_function, "cuLaunchHostFunc");
  from.take(t.event_create, "cuEventCreate");
  from.take(t.event_destroy, "cuEventDestroy_v2");
  from.take(t.event_record, "cuEventRecord");
}

result<void> open(cuda_driver& table) {
  // The library stays open for the life of the process: its threads and its memory do too.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return error{errc::unsupported, std::string{"no CUDA driver here ("} + (why != nullptr ? why : "dlopen") +
                                        "): install the NVIDIA driver, or use host memory"};
  }
  symbols found{library};
  take_all(table, found);
  if (found.missing() != nullptr)
    return error{errc::unsupported, std::string{"the CUDA driver has no "} + found.missing() +
                                        ": install a driver for CUDA 12.3 or newer"};
  if (const status code = table.init(0); code != success) return make_error(table, code, "cuInit", -1);
  return {};
}

}  // namespace

result<const cuda_driver*> cuda_driver::load() {
  static std::mutex guard;
  static cuda_driver table{};
  static bool ready = false;
  const std::lock_guard lock{guard};
  if (!ready) {
    if (auto opened = open(table); !opened) return std::move(opened).error();
    ready = true;
  }
  return &table;
}

error make_error(const cuda_driver& driver, status code, std::string_view call, int device) {
  const char* name = nullptr;
  if (driver.get_error_name == nullptr || driver.get_error_name(code, &name) != success || name == nullptr)
    name = "an unknown CUDA error";
  std::string text{call};
  text += " failed with ";
  text += name;
  text += " (" + std::to_string(code) + ")";
  if (device >= 0) text += " on GPU " + std::to_string(device);
  if (code == error_out_of_memory) {
    text += ": free device memory, or give the communicator less scratch";
    return error{errc::out_of_memory, std::move(text)};
  }
  text += device >= 0 ? ": look at the driver's log (dmesg, NVRM) and at earlier errors of this process"
                      : ": check that the driver is loaded and CUDA_VISIBLE_DEVICES names a GPU";
  return error{errc::gpu_error, std::move(text)};
}

current_context::current_context(const cuda_driver& driver, context wanted) noexcept : driver_{driver} {
  context now = nullptr;
  code_ = driver_.context_get_current(&now);
  if (code_ != success || now == wanted) return;
  code_ = driver_.context_push(wanted);
  pushed_ = code_ == success;
}

current_context::~current_context() {
  context popped = nullptr;
  if (pushed_) driver_.context_pop(&popped);
}

}  // namespace chorale::cuda
