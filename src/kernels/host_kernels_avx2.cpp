// Reductions of host memory with AVX2 and F16C: registers of 32 bytes.
#include <chorale/kernels/host_half_precision.hpp>
#include <chorale/kernels/host_loops.hpp>

#include <immintrin.h>

namespace chorale::detail {
namespace {

struct convert {
  struct half_of_floats {
    __m256 part[2];
  };
  struct half_of_halves {
    __m128i part[2];
  };

  [[gnu::always_inline]] static vec<float, 16> floats(vec<std::int16_t, 16> halves) noexcept {
    const auto in = __builtin_bit_cast(half_of_halves, halves);
    const half_of_floats out{_mm256_cvtph_ps(in.part[0]), _mm256_cvtph_ps(in.part[1])};
    return __builtin_bit_cast(vec<float, 16>, out);
  }
  template <int Rounding>
  [[gnu::always_inline]] static vec<std::int16_t, 16> halves(vec<float, 16> floats) noexcept {
    const auto in = __builtin_bit_cast(half_of_floats, floats);
    const half_of_halves out{_mm256_cvtps_ph(in.part[0], Rounding), _mm256_cvtps_ph(in.part[1], Rounding)};
    return __builtin_bit_cast(vec<std::int16_t, 16>, out);
  }
};

struct avx2_registers : half_precision_registers<convert, 32> {};

}  // namespace

constinit const host_kernel_table avx2_host_kernels = make_host_kernels<avx2_registers>();

}  // namespace chorale::detail
