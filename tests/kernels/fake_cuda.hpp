// A CUDA driver made of host memory, with streams that run at once and kernels that run on CPU threads.
//
// Device memory is malloc, shareable memory a memfd, so that descriptors really carry it between ranks. A
// launch runs the kernels' own protocol code (host_machine.hpp) on a thread, as an asynchronous GPU would;
// synchronising joins. `faults` makes chosen calls fail or chosen devices poor. One per process, reset by
// each test.
#pragma once

#include "host_machine.hpp"
#include <chorale/driver/cuda.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace chorale::cuda {

struct fake_faults {
  int no_memory_export_on = -1;  ///< device without the attribute
  int no_memory_on = -1;         ///< device whose cuMemCreate fails
  bool wrong_data = false;       ///< kernels end well but leave wrong sums
  bool one_gpu = false;          ///< every ordinal is the same GPU
};

namespace fake {

inline fake_faults faults;
inline std::mutex guard;
inline std::vector<std::string> calls;  ///< names of those that tests ask for

struct fake_stream {
  std::vector<std::jthread> running;
};
inline fake_stream* at(stream s) { return reinterpret_cast<fake_stream*>(s); }
/// What a stream does comes after what it was given before.
inline void finish(stream s) { at(s)->running.clear(); }

inline status run_kernel(const launch_config* how, function, void** parameters, void**) {
  const auto args = *static_cast<const kernels::exchange_args*>(parameters[0]);
  const launch_config config = *how;
  at(config.on)->running.emplace_back([args, config] {
    kernels::launch_exchange(config.grid_x, 4, args);
    std::byte* out = args.edges[args.group.rank].receive;
    const std::uint64_t bytes = args.edges[args.group.rank].receive_bytes;
    if (faults.wrong_data && bytes > 0) out[bytes / 2] ^= std::byte{1};
  });
  return success;
}

}  // namespace fake

/// The table. Unset entries are never called by what is tested; a null call would show at once.
inline cuda_driver make_fake_driver() {
  using namespace fake;
  cuda_driver d{};
  d.get_error_name = [](status, const char** name) { return *name = "CUDA_ERROR_FAKE", success; };
  d.device_get_count = [](int* n) { return *n = 8, success; };
  d.device_get = [](device_id* out, int ordinal) { return *out = ordinal, success; };
  d.device_get_uuid = [](unsigned char* uuid, device_id id) {
    std::memset(uuid, faults.one_gpu ? 7 : id + 1, 16);
    return success;
  };
  d.device_get_attribute = [](int* value, device_attribute what, device_id id) {
    *value = what == device_attribute::compute_capability_major ? 8 : 1;  // not 9.0: no lines
    if (what == device_attribute::posix_file_descriptor_handles && id == faults.no_memory_export_on)
      *value = 0;
    return success;
  };
  d.device_get_peer_attribute = [](int* value, peer_attribute, device_id, device_id) {
    return *value = 1, success;
  };
  d.primary_context_retain = [](context* out, device_id id) {
    *out = reinterpret_cast<context>(static_cast<std::uintptr_t>(id) + 1);
    return success;
  };
  d.primary_context_release = [](device_id) { return success; };
  d.context_get_current = [](context* out) { return *out = nullptr, success; };
  d.context_push = [](context) { return success; };
  d.context_pop = [](context*) { return success; };
  d.module_load_data = [](module* out, const void*) { return *out = nullptr, success; };
  d.module_unload = [](module) { return success; };
  d.module_get_function = [](function* out, module, const char*) { return *out = nullptr, success; };
  d.function_set_attribute = [](function, int, int) { return success; };
  d.launch_kernel = run_kernel;
  d.memory_alloc = [](device_pointer* out, std::size_t bytes) {
    *out = reinterpret_cast<device_pointer>(std::aligned_alloc(128, (bytes + 127) / 128 * 128));
    return success;
  };
  d.memory_free = [](device_pointer p) { return std::free(reinterpret_cast<void*>(p)), success; };
  d.host_alloc = [](void** out, std::size_t bytes, unsigned) {
    *out = std::aligned_alloc(128, (bytes + 127) / 128 * 128);
    return success;
  };
  d.host_free = [](void* p) { return std::free(p), success; };
  d.host_get_device_pointer = [](device_pointer* out, void* host, unsigned) {
    return *out = reinterpret_cast<device_pointer>(host), success;
  };
  d.memset_d8_async = [](device_pointer p, unsigned char value, std::size_t bytes, stream s) {
    finish(s);
    return std::memset(reinterpret_cast<void*>(p), value, bytes), success;
  };
  d.copy_to_device_async = [](device_pointer to, const void* from, std::size_t bytes, stream s) {
    finish(s);
    return std::memcpy(reinterpret_cast<void*>(to), from, bytes), success;
  };
  d.copy_to_host_async = [](void* to, device_pointer from, std::size_t bytes, stream s) {
    finish(s);
    return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), success;
  };
  d.memory_granularity = [](std::size_t* out, const memory_properties*, int) {
    return *out = 65536, success;
  };
  d.memory_create = [](memory_handle* out, std::size_t bytes, const memory_properties* p,
                       unsigned long long) {
    if (p->location.id == faults.no_memory_on) return error_out_of_memory;
    const int fd = ::memfd_create("fake device memory", MFD_CLOEXEC);
    if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return error_out_of_memory;
    *out = static_cast<memory_handle>(fd);
    return success;
  };
  d.memory_release = [](memory_handle h) { return ::close(static_cast<int>(h)), success; };
  d.memory_export = [](void* fd, memory_handle h, int, unsigned long long) {
    return *static_cast<int*>(fd) = ::dup(static_cast<int>(h)), success;
  };
  d.memory_import = [](memory_handle* out, void* fd, int) {
    *out = static_cast<memory_handle>(::dup(static_cast<int>(reinterpret_cast<std::intptr_t>(fd))));
    return success;
  };
  d.address_reserve = [](device_pointer* out, std::size_t bytes, std::size_t, device_pointer,
                         unsigned long long) {
    *out = reinterpret_cast<device_pointer>(
        ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    return success;
  };
  d.address_free = [](device_pointer p, std::size_t bytes) {
    kernels::mapped.remove(reinterpret_cast<std::byte*>(p));
    return ::munmap(reinterpret_cast<void*>(p), bytes), success;
  };
  d.memory_map = [](device_pointer p, std::size_t bytes, std::size_t, memory_handle h, unsigned long long) {
    void* at = ::mmap(reinterpret_cast<void*>(p), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      static_cast<int>(h), 0);
    if (at == MAP_FAILED) return error_out_of_memory;
    const bool known = kernels::mapped.add(static_cast<std::byte*>(at), bytes, static_cast<int>(h));
    return known ? success : error_out_of_memory;
  };
  d.memory_unmap = [](device_pointer, std::size_t) { return success; };
  d.memory_set_access = [](device_pointer, std::size_t, const memory_access*, std::size_t) {
    return success;
  };
  d.stream_create = [](stream* out, unsigned) {
    return *out = reinterpret_cast<stream>(new fake_stream), success;
  };
  d.stream_destroy = [](stream s) { return delete at(s), success; };
  d.stream_synchronize = [](stream s) { return finish(s), success; };
  d.stream_query = [](stream) { return error_not_ready; };
  d.stream_wait_event = [](stream, event, unsigned) {
    const std::lock_guard lock{guard};
    return calls.emplace_back("wait"), success;
  };
  d.stream_capture_info = [](stream, int* state, std::uint64_t*, graph*, const graph_node**, std::size_t*) {
    return *state = capture_none, success;
  };
  d.thread_exchange_capture_mode = [](int*) { return success; };
  d.event_create = [](event* out, unsigned) { return *out = reinterpret_cast<event>(1), success; };
  d.event_destroy = [](event) { return success; };
  d.event_record = [](event, stream) {
    const std::lock_guard lock{guard};
    return calls.emplace_back("record"), success;
  };
  return d;
}

}  // namespace chorale::cuda
