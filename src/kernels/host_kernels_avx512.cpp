// Reductions of host memory with AVX-512: registers of 64 bytes.
#include <chorale/kernels/host_half_precision.hpp>
#include <chorale/kernels/host_loops.hpp>

#include <immintrin.h>

namespace chorale::detail {
namespace {

// The zero-masked forms, with all lanes on, are the plain instructions. g++ 12 warns inside its header at the
// plain forms (GCC bug 105593).
struct convert {
  using halves_vector = vec<std::int16_t, 32>;
  using floats_vectors = registers<vec<float, 16>, 2>;
  static constexpr __mmask16 all = 0xffff;

  [[gnu::always_inline]] static floats_vectors floats(halves_vector halves) noexcept {
    using half = std::make_index_sequence<16>;
    return {_mm512_maskz_cvtph_ps(all, __builtin_bit_cast(__m256i, some_of<0>(halves, half{}))),
            _mm512_maskz_cvtph_ps(all, __builtin_bit_cast(__m256i, some_of<16>(halves, half{})))};
  }
  template <int Rounding>
  [[gnu::always_inline]] static halves_vector halves(const floats_vectors& floats) noexcept {
    using codes = vec<std::int16_t, 16>;
    const codes low = __builtin_bit_cast(codes, _mm512_maskz_cvtps_ph(all, floats.part[0], Rounding));
    const codes high = __builtin_bit_cast(codes, _mm512_maskz_cvtps_ph(all, floats.part[1], Rounding));
    return joined(low, high, std::make_index_sequence<32>{});
  }
};

struct avx512_registers : half_precision_registers<convert, 64> {};

}  // namespace

constinit const host_kernel_table avx512_host_kernels = make_host_kernels<avx512_registers>();

}  // namespace chorale::detail
