#include <chorale/kernels/host_reduce.hpp>

#include <string>

// One body, compiled for each instruction set and picked when the program is loaded. The sanitizers' runtimes
// are not up yet when the loader asks, so there the portable body serves.
#if defined(__x86_64__) && defined(__ELF__) && !defined(CHORALE_SANITIZED)
#define CHORALE_PER_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CHORALE_PER_CPU
#endif

namespace chorale {
namespace {

CHORALE_PER_CPU void add_f32(float* out, const float* left, const float* right, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = left[i] + right[i];
}

void sum_f32(std::byte* out, const std::byte* left, const std::byte* right, std::size_t count) noexcept {
  add_f32(reinterpret_cast<float*>(out), reinterpret_cast<const float*>(left),
          reinterpret_cast<const float*>(right), count);
}

}  // namespace

result<host_reduction> find_host_reduction(dtype type, reduction op) {
  if (type == dtype::f32 && op == reduction::sum) return host_reduction{sum_f32};
  return error{errc::unsupported, "no " + std::string{name_of(op)} + " of " + std::string{name_of(type)} +
                                      " on host memory in this version; f32 sum is there"};
}

}  // namespace chorale
