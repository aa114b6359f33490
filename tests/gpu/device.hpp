// A GPU as tests and benchmarks use it: buffers, streams, graphs, through the driver table alone.
//
// Everything throws chorale::failure on a CUDA error: a test program ends there and says why.
#pragma once

#include <chorale/driver/cuda.hpp>

#include <dlfcn.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace chorale::gpu_test {

inline const cuda::cuda_driver& driver() {
  static const cuda::cuda_driver* table = cuda::cuda_driver::load().value();
  return *table;
}
inline void require(cuda::status code, const char* call) { cuda::check(driver(), code, call, -1).value(); }

/// The device's primary context, current in the calling thread as long as this lives.
class device {
 public:
  explicit device(int ordinal) {
    require(driver().device_get(&id_, ordinal), "cuDeviceGet");
    require(driver().primary_context_retain(&context_, id_), "cuDevicePrimaryCtxRetain");
    require(driver().context_push(context_), "cuCtxPushCurrent");
  }
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  ~device() {
    cuda::context popped = nullptr;
    driver().context_pop(&popped);
    driver().primary_context_release(id_);
  }
  [[nodiscard]] cuda::context context() const { return context_; }

 private:
  cuda::device_id id_ = -1;
  cuda::context context_ = nullptr;
};

class work_stream {
 public:
  work_stream() { require(driver().stream_create(&stream_, cuda::stream_non_blocking), "cuStreamCreate"); }
  work_stream(const work_stream&) = delete;
  work_stream& operator=(const work_stream&) = delete;
  ~work_stream() { driver().stream_destroy(stream_); }
  [[nodiscard]] cuda::stream get() const { return stream_; }
  void synchronize() const { require(driver().stream_synchronize(stream_), "cuStreamSynchronize"); }

 private:
  cuda::stream stream_ = nullptr;
};

class device_floats {
 public:
  explicit device_floats(std::size_t count) : count_{count} {
    require(driver().memory_alloc(&address_, (count + 1) * sizeof(float)), "cuMemAlloc");
  }
  device_floats(const device_floats&) = delete;
  device_floats& operator=(const device_floats&) = delete;
  ~device_floats() { driver().memory_free(address_); }
  [[nodiscard]] float* data() const { return reinterpret_cast<float*>(address_); }
  [[nodiscard]] std::size_t size() const { return count_; }

  void fill_bytes(unsigned char value, const work_stream& on) const {
    require(driver().memset_d8_async(address_, value, count_ * sizeof(float), on.get()), "cuMemsetD8Async");
    on.synchronize();
  }
  void write(std::size_t at, const float* from, std::size_t n, const work_stream& on) const {
    require(driver().copy_to_device_async(address_ + at * sizeof(float), from, n * sizeof(float), on.get()),
            "cuMemcpyHtoDAsync");
    on.synchronize();
  }
  void read(std::size_t at, float* to, std::size_t n, const work_stream& on) const {
    require(driver().copy_to_host_async(to, address_ + at * sizeof(float), n * sizeof(float), on.get()),
            "cuMemcpyDtoHAsync");
    on.synchronize();
  }

 private:
  cuda::device_pointer address_ = 0;
  std::size_t count_;
};

/// The calls that only programs with graphs of their own need.
class captured_graph {
 public:
  template <class Work>
  captured_graph(const work_stream& on, Work work) {
    const calls& c = table();
    require(c.begin(on.get(), 1 /* thread local */), "cuStreamBeginCapture");
    work();
    require(c.end(on.get(), &graph_), "cuStreamEndCapture");
    require(c.instantiate(&executable_, graph_, 0), "cuGraphInstantiateWithFlags");
  }
  captured_graph(const captured_graph&) = delete;
  captured_graph& operator=(const captured_graph&) = delete;
  ~captured_graph() {
    table().destroy_executable(executable_);
    table().destroy(graph_);
  }
  void launch(const work_stream& on) const {
    require(table().launch(executable_, on.get()), "cuGraphLaunch");
  }

 private:
  struct calls {
    cuda::status (*begin)(cuda::stream, int);
    cuda::status (*end)(cuda::stream, cuda::graph*);
    cuda::status (*instantiate)(void**, cuda::graph, unsigned long long);
    cuda::status (*launch)(void*, cuda::stream);
    cuda::status (*destroy_executable)(void*);
    cuda::status (*destroy)(cuda::graph);
  };
  static const calls& table() {
    static const calls c = [] {
      calls t{};
      void* library = dlopen("libcuda.so.1", RTLD_NOW);
      const auto take = [library](auto& slot, const char* name) {
        slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(dlsym(library, name));
        if (slot == nullptr)
          throw failure{error{errc::unsupported, std::string{"the driver has no "} + name}};
      };
      take(t.begin, "cuStreamBeginCapture_v2");
      take(t.end, "cuStreamEndCapture");
      take(t.instantiate, "cuGraphInstantiateWithFlags");
      take(t.launch, "cuGraphLaunch");
      take(t.destroy_executable, "cuGraphExecDestroy");
      take(t.destroy, "cuGraphDestroy");
      return t;
    }();
    return c;
  }
  cuda::graph graph_ = nullptr;
  void* executable_ = nullptr;
};

}  // namespace chorale::gpu_test
