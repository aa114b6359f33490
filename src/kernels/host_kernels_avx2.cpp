// Reductions of host memory with AVX2 and F16C: registers of 32 bytes.
#include <chorale/kernels/host_half_precision.hpp>
#include <chorale/kernels/host_loops.hpp>

#include <immintrin.h>

namespace chorale::detail {
namespace {

struct convert {
  using halves_vector = vec<std::int16_t, 16>;
  using floats_vectors = registers<vec<float, 8>, 2>;

  [[gnu::always_inline]] static floats_vectors floats(halves_vector halves) noexcept {
    const auto in = __builtin_bit_cast(__m256i, halves);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(in)), _mm256_cvtph_ps(_mm256_extracti128_si256(in, 1))};
  }
  template <int Rounding>
  [[gnu::always_inline]] static halves_vector halves(const floats_vectors& floats) noexcept {
    const __m128i low = _mm256_cvtps_ph(floats.part[0], Rounding);
    const __m128i high = _mm256_cvtps_ph(floats.part[1], Rounding);
    return __builtin_bit_cast(halves_vector, _mm256_set_m128i(high, low));
  }
};

struct avx2_registers : half_precision_registers<convert, 32> {};

}  // namespace

constinit const host_kernel_table avx2_host_kernels = make_host_kernels<avx2_registers>();

}  // namespace chorale::detail
