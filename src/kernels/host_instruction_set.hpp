// Which vector instructions the reductions of host memory use. All sets give the same bits; they differ in
// speed.
#pragma once

#include <cstdint>
#include <string_view>

namespace chorale {

enum class instruction_set : std::uint8_t {
  portable,  ///< what every processor of the architecture has
  avx2,      ///< AVX2 and F16C
  avx512,    ///< AVX-512 F, BW, DQ and VL
};

[[nodiscard]] constexpr std::string_view name_of(instruction_set set) noexcept {
  switch (set) {
    case instruction_set::portable:
      return "portable";
    case instruction_set::avx2:
      return "avx2";
    case instruction_set::avx512:
      return "avx512";
  }
  return "unknown";
}

/// The widest that this processor and its operating system run. Asked once.
[[nodiscard]] instruction_set best_instruction_set() noexcept;

}  // namespace chorale
