// The CUDA driver as a table of functions, found at run time.
//
// chorale links neither libcuda nor cudart: `cuda_driver::load()` opens libcuda.so.1 once per process and
// fills the table, or says why it cannot. Everything that talks to a GPU takes a `const cuda_driver&`, so
// that tests hand in a table of their own (fake_cuda.hpp) and the logic runs on machines without a GPU.
//
// The few types of the driver's ABI that the table needs are declared here under our own names, so that no
// CUDA header is needed to build or to use chorale; a test compares every layout and constant with <cuda.h>
// where that is installed. The table is immutable after load() and may be used from any thread.
#pragma once

#include <chorale/async/result.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chorale::cuda {

using status = int;  ///< CUresult
using device_id = int;
using device_pointer = std::uint64_t;
using memory_handle = std::uint64_t;  ///< CUmemGenericAllocationHandle
using context = struct context_object*;
using module = struct module_object*;
using function = struct function_object*;
using stream = struct stream_object*;
using event = struct event_object*;
using graph = struct graph_object*;
using graph_node = struct graph_node_object*;

inline constexpr status success = 0;
inline constexpr status error_out_of_memory = 2;
inline constexpr status error_not_ready = 600;

enum class device_attribute : int {
  multiprocessor_count = 16,
  compute_capability_major = 75,
  compute_capability_minor = 76,
  shared_memory_per_block_optin = 97,
  virtual_memory_management = 102,
  posix_file_descriptor_handles = 103,
};
enum class peer_attribute : int { access_supported = 2, native_atomics = 3 };

struct memory_location {
  int type;  ///< 1: device
  int id;
};
inline constexpr int location_device = 1;

struct memory_properties {  // CUmemAllocationProp
  int type;                 ///< 1: pinned
  int handle_types;         ///< 1: POSIX file descriptor
  memory_location location;
  void* platform_data;
  struct {
    unsigned char compression;
    unsigned char rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
inline constexpr int allocation_pinned = 1;
inline constexpr int handle_posix_fd = 1;

struct memory_access {  // CUmemAccessDesc
  memory_location location;
  int flags;  ///< 3: read and write
};
inline constexpr int access_read_write = 3;

struct launch_config {  // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  stream on;
  void* attributes;
  unsigned attribute_count;
};

inline constexpr unsigned host_alloc_portable = 1;
inline constexpr unsigned host_alloc_mapped = 2;
inline constexpr unsigned stream_non_blocking = 1;
inline constexpr unsigned event_no_timing = 2;
inline constexpr unsigned wait_value_geq = 0;
inline constexpr int capture_none = 0;
inline constexpr int capture_active = 1;
inline constexpr int capture_mode_relaxed = 2;
inline constexpr int function_max_dynamic_shared = 8;
inline constexpr int granularity_minimum = 0;

struct cuda_driver {
  // process and device
  status (*init)(unsigned flags);
  status (*driver_get_version)(int* version);
  status (*get_error_name)(status, const char** name);
  status (*device_get_count)(int* count);
  status (*device_get)(device_id* out, int ordinal);
  status (*device_get_name)(char* name, int bytes, device_id);
  status (*device_get_uuid)(unsigned char* uuid, device_id);
  status (*device_get_attribute)(int* value, device_attribute, device_id);
  status (*device_get_peer_attribute)(int* value, peer_attribute, device_id from, device_id to);
  // contexts
  status (*primary_context_retain)(context* out, device_id);
  status (*primary_context_release)(device_id);
  status (*context_get_current)(context* out);
  status (*context_push)(context);
  status (*context_pop)(context* out);
  // code
  status (*module_load_data)(module* out, const void* image);
  status (*module_unload)(module);
  status (*module_get_function)(function* out, module, const char* name);
  status (*function_set_attribute)(function, int attribute, int value);
  status (*launch_kernel)(const launch_config*, function, void** parameters, void** extra);
  // memory
  status (*memory_alloc)(device_pointer* out, std::size_t bytes);
  status (*memory_free)(device_pointer);
  status (*host_alloc)(void** out, std::size_t bytes, unsigned flags);
  status (*host_free)(void*);
  status (*host_get_device_pointer)(device_pointer* out, void* host, unsigned flags);
  status (*memset_d8_async)(device_pointer, unsigned char value, std::size_t bytes, stream);
  status (*copy_to_device_async)(device_pointer, const void*, std::size_t bytes, stream);
  status (*copy_to_host_async)(void*, device_pointer, std::size_t bytes, stream);
  // memory that other processes can map
  status (*memory_granularity)(std::size_t* out, const memory_properties*, int option);
  status (*memory_create)(memory_handle* out, std::size_t bytes, const memory_properties*,
                          unsigned long long flags);
  status (*memory_release)(memory_handle);
  status (*memory_export)(void* fd, memory_handle, int handle_type, unsigned long long flags);
  status (*memory_import)(memory_handle* out, void* fd, int handle_type);
  status (*address_reserve)(device_pointer* out, std::size_t bytes, std::size_t alignment,
                            device_pointer hint, unsigned long long flags);
  status (*address_free)(device_pointer, std::size_t bytes);
  status (*memory_map)(device_pointer, std::size_t bytes, std::size_t offset, memory_handle,
                       unsigned long long flags);
  status (*memory_unmap)(device_pointer, std::size_t bytes);
  status (*memory_set_access)(device_pointer, std::size_t bytes, const memory_access*, std::size_t count);
  // streams and events
  status (*stream_create)(stream* out, unsigned flags);
  status (*stream_destroy)(stream);
  status (*stream_synchronize)(stream);
  status (*stream_query)(stream);
  status (*stream_wait_event)(stream, event, unsigned flags);
  status (*stream_wait_value64)(stream, device_pointer, std::uint64_t value, unsigned flags);
  status (*stream_capture_info)(stream, int* status, std::uint64_t* id, graph* out, const graph_node** after,
                                std::size_t* after_count);
  status (*thread_exchange_capture_mode)(int* mode);
  status (*launch_host_function)(stream, void (*function)(void*), void* argument);
  status (*event_create)(event* out, unsigned flags);
  status (*event_destroy)(event);
  status (*event_record)(event, stream);

  /// The process's table. The first call opens and initialises the driver; errc::unsupported where there is
  /// none, errc::gpu_error where it refuses to start. Thread-safe; a failure is tried again by the next call.
  static result<const cuda_driver*> load();
};

/// Turns a driver status into an error that names the call, the CUDA error and the device.
[[nodiscard]] error make_error(const cuda_driver& driver, status code, std::string_view call, int device);

/// `check` for calls that return nothing else: an empty result on success.
[[nodiscard]] inline result<void> check(const cuda_driver& driver, status code, std::string_view call,
                                        int device) {
  if (code == success) return {};
  return make_error(driver, code, call, device);
}

/// Makes a context current for a block of code and puts the caller's back. Costs one driver call where the
/// context is current already, which is the usual case on a launching thread.
class current_context {
 public:
  current_context(const cuda_driver& driver, context wanted) noexcept;
  ~current_context();
  current_context(const current_context&) = delete;
  current_context& operator=(const current_context&) = delete;
  [[nodiscard]] status code() const noexcept { return code_; }

 private:
  const cuda_driver& driver_;
  bool pushed_ = false;
  status code_ = success;
};

/// Lets the calling thread make CUDA calls that a stream capture elsewhere in the process would forbid.
class relaxed_capture {
 public:
  explicit relaxed_capture(const cuda_driver& driver) noexcept : driver_{driver} {
    driver_.thread_exchange_capture_mode(&mode_);
  }
  ~relaxed_capture() { driver_.thread_exchange_capture_mode(&mode_); }
  relaxed_capture(const relaxed_capture&) = delete;
  relaxed_capture& operator=(const relaxed_capture&) = delete;

 private:
  const cuda_driver& driver_;
  int mode_ = capture_mode_relaxed;
};

}  // namespace chorale::cuda
