// Reductions of host memory with AVX-512: registers of 64 bytes.
#include <chorale/kernels/host_half_precision.hpp>
#include <chorale/kernels/host_loops.hpp>

#include <immintrin.h>

namespace chorale::detail {
namespace {

// The zero-masked forms, with all lanes on, are the plain instructions. g++ 12 warns inside its header at the
// plain forms (GCC bug 105593).
struct convert {
  static constexpr __mmask16 all = 0xffff;

  [[gnu::always_inline]] static vec<float, 16> floats(vec<std::int16_t, 16> halves) noexcept {
    const __m512 floats = _mm512_maskz_cvtph_ps(all, __builtin_bit_cast(__m256i, halves));
    return __builtin_bit_cast(vec<float, 16>, floats);
  }
  template <int Rounding>
  [[gnu::always_inline]] static vec<std::int16_t, 16> halves(vec<float, 16> floats) noexcept {
    const __m256i halves = _mm512_maskz_cvtps_ph(all, __builtin_bit_cast(__m512, floats), Rounding);
    return __builtin_bit_cast(vec<std::int16_t, 16>, halves);
  }
};

struct avx512_registers : half_precision_registers<convert, 64> {};

}  // namespace

constinit const host_kernel_table avx512_host_kernels = make_host_kernels<avx512_registers>();

}  // namespace chorale::detail
